"""Watch a plan: do steps take as long as before, are residuals within their budget? All ranks decide alike.

After every window of steps the ranks compare the mean of their median times with what a step took when the plan was
chosen, and the error of one step with its budget. Both are sums over ranks, so that all decide alike.
"""

import logging
import math
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.hooks import timing_hook
from ssfx.runtime.store import Store
from ssfx.schemes.online_planning import PlanLimits

_log = logging.getLogger("ssfx")


class StepClock:
    """Times steps from the end of the forward pass to written averages, or from the last step where none was seen."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._began = perf_counter()
        self._handle = model.register_forward_hook(timing_hook(self._mark))

    def _mark(self, *_: Any) -> None:
        self._began = perf_counter()

    def end_step(self) -> float:
        """Return the seconds of the step that ends now."""
        began, self._began = self._began, perf_counter()
        return self._began - began

    def close(self) -> None:
        """Remove the forward hook."""
        self._handle.remove()


class PlanWatch:
    """Says when a plan should be made anew.

    Two windows on end that take more or less time than the plan did at first, by more than the limit's share: the link,
    the machine or the batch has changed. Or a step that keeps back more than the limit: the options to plan with from
    then on are gentler. `limits_of` returns the limits that options set.
    """

    def __init__(self, comm: Comm, limits_of: Callable[[dict[str, Any]], PlanLimits], given: dict[str, Any]) -> None:
        self._comm, self._limits_of = comm, limits_of
        self.given = given
        """The options to plan with: those given, gentler where a budget was exceeded."""
        self.error: float | None = None
        """The residual's norm over the norm of what there was to send, in the step that was measured last."""
        self.replans: list[str] = []
        """Why plans were made anew."""
        self._usual_s: float | None = None
        self._deviated = False
        self._times: list[float] = []
        self.limits = limits_of(given)

    def planned(self, step_s: float | None) -> None:
        """Compare from now on with `step_s`; None: with the first window of the plan that is in use now."""
        self._usual_s, self._deviated, self._times = step_s, False, []

    def end_step(self, seconds: float, kept_back: tuple[float, float]) -> str:
        """Close a step that took so long here; return why a new plan is due, "" if none is.

        `kept_back`: of this rank the squared norms of the residual and of what there was to send, when last measured.
        """
        if not self.limits.time_change and self.limits.error is None:
            return ""
        self._times.append(seconds)
        if len(self._times) < self.limits.window_steps:
            return ""
        measured = [median(self._times), *kept_back]
        table = torch.tensor(measured, dtype=torch.float64, device=self._comm.device)
        mean_s, kept, whole = (self._comm.all_reduce(table).wait() / self._comm.world_size).tolist()
        self._times = []
        reason = self._verdict(mean_s, (kept / whole) ** 0.5 if whole else None)
        if reason:
            self.replans.append(reason)
            if self._comm.rank == 0:
                _log.warning("the plan is made anew: %s", reason)
        return reason

    def _verdict(self, mean_s: float, error: float | None) -> str:
        self.error = error
        limit, time_change = self.limits.error, self.limits.time_change
        if limit is not None and error is not None and error > limit:
            self.given = self.limits.gentler(self.given, error)
            self.limits = self._limits_of(self.given)
            return f"{error:.3g} of the gradient's norm became residual, at most {limit:.3g} is allowed"
        usual_s, self._usual_s = self._usual_s, self._usual_s or mean_s
        before = self._deviated
        self._deviated = bool(usual_s and time_change) and abs(mean_s / self._usual_s - 1) > time_change
        if not (before and self._deviated and usual_s):
            return ""
        return f"a step takes {1e3 * mean_s:.3g} ms after the forward pass, {1e3 * usual_s:.3g} when it was planned"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {
            "given": dict(self.given), "error": self.error, "replans": list(self.replans), "usual_s": self._usual_s,
            "deviated": self._deviated, "times": list(self._times),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.given, self.error, self.replans = dict(state["given"]), state["error"], list(state["replans"])
        self._usual_s, self._deviated, self._times = state["usual_s"], state["deviated"], list(state["times"])
        self.limits = self._limits_of(self.given)


class KeptBack:
    """Measures in one step of `every`, on this rank, the gradients plus residuals before it and the residuals after it.

    `buffer`: the name of the memory's residual. `kept_squares` returns the squared norm of what the last step
    left in it. `share` is the residual's share in the last measured step, None before one was measured, and
    where there was nothing to send.
    """

    def __init__(self, store: Store, buffer: str, every: int, kept_squares: Callable[[str], float]) -> None:
        self._store, self._buffer, self._every, self._kept_squares = store, buffer, every, kept_squares
        self._steps = 0
        self._whole = 0.0
        self.squares = (0.0, 0.0)
        """Squared norms of the residuals, and of gradients plus earlier residuals, in the last measured step."""

    @property
    def due(self) -> bool:
        """True in a step that is measured."""
        return self._steps == self._every - 1

    @property
    def share(self) -> float | None:
        """The residual's norm over that of gradient plus earlier residual."""
        kept, whole = self.squares
        return (kept / whole) ** 0.5 if whole else None

    def restart(self) -> None:
        """Measure the last of the next `every` steps."""
        self._steps, self._whole = 0, 0.0

    def gradient(self, name: str, grad: torch.Tensor | None) -> None:
        """Record a gradient that is about to be exchanged, with its residual."""
        if grad is None:
            return
        kept = self._store.get(name, self._buffer)
        whole = grad.float() if kept is None else grad.float() + kept.view_as(grad)
        self._whole += float(whole.square().sum())

    def end_step(self) -> bool:
        """Close a step; return whether it was measured."""
        if not self.due:
            self._steps += 1
            return False
        squares = (self._kept_squares(self._buffer), self._whole)
        self.restart()
        if not all(map(math.isfinite, squares)):
            return False  # the step was undone
        self.squares = squares
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with; between steps only."""
        return {"steps": self._steps, "squares": self.squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._steps, self.squares = state["steps"], tuple(state["squares"])
