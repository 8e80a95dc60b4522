"""Watching a plan: whether steps take as long as planned and keep back no more than allowed, agreed on by all ranks.

After every window of steps the ranks compare the mean of their median times with what was planned, and the error of one
step with its budget. Both are sums over ranks, so that all decide alike.
"""

from __future__ import annotations

import logging
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.planning.plan import Plan
from ssfx.runtime.store import Store

LESS = 0.95
"""An exceeded error budget is planned for with its part of what was measured, and so much less."""
_log = logging.getLogger("ssfx")


class PlanWatch:
    """Says when a plan should be made anew. Steps are timed from the end of the forward pass.

    A step that deviates from the plan by more than `above` as a share makes one new plan; if that deviates, too, what
    it takes is what later windows are compared with, because a plan is only as right as its model of the machine.
    """

    def __init__(self, comm: Comm, model: torch.nn.Module, options: Any, buffer: str) -> None:
        self._comm, self._buffer = comm, buffer
        self.above, self.after = options.replan_above, options.replan_after
        self.budget: float | None = options.error_budget
        self.allowed = self.budget
        """The error budget to plan with: smaller than what was asked for where that was exceeded."""
        self.error: float | None = None
        """What was kept back over what there was, by norm, in the step that was measured last."""
        self.replans: list[str] = []
        """Why plans were made anew."""
        self._reference_s: float | None = None
        self._adopts = False
        self._times: list[float | None] = []
        self._began: float | None = None
        self._before = 0.0
        self._handle = model.register_forward_hook(self._mark)

    def _mark(self, *_: Any) -> None:
        self._began = perf_counter()

    def close(self) -> None:
        """Remove the forward hook."""
        self._handle.remove()

    def planned(self, plan: Plan) -> None:
        """Compare from now on with what `plan` predicts."""
        predicted = dict(plan.notes).get("predicted_ms")
        self._reference_s = None if predicted is None else float(predicted) / 1e3
        self._times = []

    @property
    def measures(self) -> bool:
        """True in the step whose error counts: the last one of a window."""
        return self.budget is not None and self._reference_s is not None and len(self._times) == self.after - 1

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options to plan with: those given, with an error budget that was exceeded made smaller."""
        return given if self.allowed is None else {**given, "error_budget": self.allowed}

    def gradient(self, name: str, grad: torch.Tensor | None, store: Store) -> None:
        """Take note of a gradient that is about to be exchanged, and of what is kept of earlier ones."""
        if grad is None:
            return
        kept = store.get(name, self._buffer)
        whole = grad.float() if kept is None else grad.float() + kept.view_as(grad)
        self._before += float(whole.square().sum())

    def end_step(self, store: Store) -> str:
        """Close a step, which left in the store what it kept back; return why a new plan is due, "" if none is."""
        if self._reference_s is None or not (self.above or self.budget):
            return ""
        kept_norm = store.norm(self._buffer) if self.measures else 0.0
        self._times.append(None if self._began is None else perf_counter() - self._began)
        self._began = None
        if len(self._times) < self.after:
            return ""
        known = [seconds for seconds in self._times if seconds is not None]
        own = [median(known) if known else self._reference_s, kept_norm**2, self._before]
        table = torch.tensor(own, dtype=torch.float64, device=self._comm.device)
        mean_s, kept, before = (self._comm.all_reduce(table).wait() / self._comm.world_size).tolist()
        self._times, self._before = [], 0.0
        reason = self._verdict(mean_s, (kept / before) ** 0.5 if before else None)
        if reason:
            self.replans.append(reason)
            if self._comm.rank == 0:
                _log.warning("the plan is made anew: %s", reason)
        return reason

    def _verdict(self, mean_s: float, error: float | None) -> str:
        assert self._reference_s is not None
        if self.budget is not None and self.allowed is not None and error is not None:
            self.error = error
            if error > self.budget:
                self.allowed *= LESS * self.budget / error
                return f"{error:.3g} of the gradient's norm was kept back, at most {self.budget:g} is allowed"
        deviates = bool(self.above) and abs(mean_s / self._reference_s - 1) > self.above
        if not deviates:
            self._adopts = False
            return ""
        if self._adopts:
            self._reference_s, self._adopts = mean_s, False
            return ""
        self._adopts = True
        return f"a step takes {1e3 * mean_s:.3g} ms after the forward pass, planned were {1e3 * self._reference_s:.3g}"

    def summary(self) -> dict[str, float | int | str | None]:
        """Return how often a plan was made anew, and the error measured last."""
        return {"replans": len(self.replans), "error": self.error}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {
            "allowed": self.allowed, "error": self.error, "replans": list(self.replans),
            "reference_s": self._reference_s, "adopts": self._adopts, "times": list(self._times),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.allowed, self.error, self.replans = state["allowed"], state["error"], list(state["replans"])
        self._reference_s, self._adopts = state["reference_s"], state["adopts"]
        self._times = list(state["times"])
