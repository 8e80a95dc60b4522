"""Choosing among plans by training with them: whatever was predicted, the one is kept that is the fastest here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.planning.plan import Plan

KEPT = ((3, 0.25), (2, 0.10))
"""After each round but the last: at most so many plans stay, no slower than the fastest by more than this share."""
ROUNDS = len(KEPT) + 1
NEAR = 0.03
"""A plan that leaves nothing out is kept if it is slower than the fastest by no more: so little is worth no error."""
SETTLING, AT_FIRST = 1, 4
"""Steps of a visit that do not count, as the first one with a plan allocates its buffers; and of the very first visit,
before which costs were measured."""


class PlanTrial:
    """Trains with every plan in turn; `plan` is the one to train with now, and the fastest one when `finished`.

    A round visits each plan that is left for `SETTLING` and `timed` steps, every other round in the opposite order, so
    that a drift hits all alike. A plan's time is the least of its visits' mean steps, each the mean over ranks: what
    else goes on only ever makes steps longer. Of plans that are as fast but for `NEAR`, one that sends every element
    in 32 or 16 bits is taken for the fastest. All ranks decide by the same numbers. Nothing is lost between plans:
    residuals belong to parameters.
    """

    def __init__(self, comm: Comm, plans: Sequence[Plan], timed: int) -> None:
        self._comm, self._timed = comm, timed
        self.plans = tuple(plans)
        self._exact = [sends_all(plan) for plan in plans]
        self.times_s: list[float | None] = [None] * len(plans)
        """The least mean step of each plan; None where it was not trained with yet."""
        self._left = list(range(len(plans)))
        self._round = self._at = 0
        self._steps_s: list[float] = []
        self._visits_s: list[float] = []
        self._skipped = AT_FIRST

    @property
    def plan(self) -> Plan:
        """The plan to train with now."""
        return self.plans[self._left[self._at]]

    @property
    def finished(self) -> bool:
        """True when one plan is left."""
        return len(self._left) == 1

    @property
    def step_s(self) -> float | None:
        """What a step takes with the plan in use."""
        return self.times_s[self._left[self._at]]

    def end_step(self, seconds: float) -> bool:
        """Note how long a step took on this rank; return whether another plan is due, or the last one stays."""
        if self._skipped:
            self._skipped -= 1
            return False
        self._steps_s.append(seconds)
        if len(self._steps_s) < self._timed:
            return False
        self._visits_s.append(sum(self._steps_s) / self._timed)
        self._steps_s, self._skipped = [], SETTLING
        if self._at < len(self._left) - 1:
            self._at += 1
        else:
            self._end_round()
        return True

    def _end_round(self) -> None:
        table = torch.tensor(self._visits_s, dtype=torch.float64, device=self._comm.device)
        agreed = (self._comm.all_reduce(table).wait() / self._comm.world_size).tolist()
        for number, seconds in zip(self._left, agreed, strict=True):
            before = self.times_s[number]
            self.times_s[number] = seconds if before is None else min(before, seconds)
        self._visits_s, self._at = [], 0
        fastest = sorted(self._left, key=self._time_s)
        exact = next((number for number in fastest if self._exact[number]), fastest[0])
        least_s = self._time_s(fastest[0])
        self._round += 1
        if self._round == ROUNDS:
            self._left = [exact if self._time_s(exact) <= (1 + NEAR) * least_s else fastest[0]]
            return
        most, slower = KEPT[self._round - 1]
        stay = fastest[:most] if exact in fastest[:most] else [*fastest[: most - 1], exact]
        self._left = [number for number in stay if self._time_s(number) <= (1 + slower) * least_s]
        if self._round % 2:
            self._left.reverse()

    def _time_s(self, number: int) -> float:
        seconds = self.times_s[number]
        assert seconds is not None
        return seconds

    def words(self) -> str:
        """Return what every plan took that was trained with, the fastest first."""
        tried = sorted((one for one in range(len(self.plans)) if self.times_s[one] is not None), key=self._time_s)
        labels = [dict(plan.notes).get("chosen", "a plan") for plan in self.plans]
        named = (f"{labels[one]} {1e3 * self._time_s(one):.3g}" for one in tried)
        return f"{len(tried)} plans, ms a step after the forward pass: {'; '.join(named)}"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {
            "plans": [plan.to_json() for plan in self.plans], "times_s": list(self.times_s), "left": list(self._left),
            "round": self._round, "at": self._at, "steps_s": list(self._steps_s), "visits_s": list(self._visits_s),
            "timed": self._timed, "skipped": self._skipped,
        }  # fmt: skip

    @classmethod
    def resumed(cls, comm: Comm, state: dict[str, Any]) -> PlanTrial:
        """Return the trial that `state_dict` was taken of."""
        trial = cls(comm, [Plan.from_json(text) for text in state["plans"]], state["timed"])
        trial.times_s, trial._left = list(state["times_s"]), list(state["left"])
        trial._round, trial._at = state["round"], state["at"]
        trial._steps_s, trial._visits_s = list(state["steps_s"]), list(state["visits_s"])
        trial._skipped = state["skipped"]
        return trial


def sends_all(plan: Plan) -> bool:
    """Return whether a plan leaves nothing out: every element travels, in 32 or 16 bits."""
    specs = {segment.compressor for _, lane in plan.lanes() for segment in lane.segments}
    return all(spec is None or build(spec).lossless for spec in specs)


def most_steps(plans: int, timed: int) -> int:
    """Return how many steps a trial of so many plans takes at most."""
    visits = plans + sum(min(plans, most) for most, _ in KEPT)
    return AT_FIRST - SETTLING + visits * (SETTLING + timed)
