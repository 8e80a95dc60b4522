"""Time each candidate plan in training, keep the fastest, and watch it: all ranks decide alike.

After every window of steps the ranks compare the mean of their median times with what a step took when the plan was
chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.planning.plan import Plan
from ssfx.schemes.online_planning import PlanLimits

_log = logging.getLogger("ssfx")


class PlanWatch:
    """Says when a plan should be made anew: two windows on end whose steps take more, or less, time than the plan's did
    at first, by more than the limit's share. The link, the machine or the batch has changed then.
    """

    def __init__(self, comm: Comm, limits: PlanLimits) -> None:
        self._comm, self._limits = comm, limits
        self.replans: list[str] = []
        """Why plans were made anew."""
        self._usual_s: float | None = None
        self._deviated = False
        self._times: list[float] = []

    def planned(self, step_s: float | None) -> None:
        """Compare from now on with `step_s`; None: with the first window of the plan that is in use now."""
        self._usual_s, self._deviated, self._times = step_s, False, []

    def end_step(self, seconds: float) -> str:
        """Close a step that took so long here; return why a new plan is due, "" if none is."""
        if not self._limits.time_change:
            return ""
        self._times.append(seconds)
        if len(self._times) < self._limits.window_steps:
            return ""
        # The sum over ranks, so that all decide alike.
        table = torch.tensor([median(self._times)], dtype=torch.float64, device=self._comm.device)
        mean_s = float(self._comm.all_reduce(table).wait()) / self._comm.world_size
        self._times = []
        reason = self._verdict(mean_s)
        if reason:
            self.replans.append(reason)
            if self._comm.rank == 0:
                _log.warning("the plan is made anew: %s", reason)
        return reason

    def _verdict(self, mean_s: float) -> str:
        usual_s, self._usual_s = self._usual_s, self._usual_s or mean_s
        before = self._deviated
        self._deviated = bool(usual_s) and abs(mean_s / self._usual_s - 1) > self._limits.time_change
        if not (before and self._deviated and usual_s):
            return ""
        return f"a step takes {1e3 * mean_s:.3g} ms after the forward pass, {1e3 * usual_s:.3g} when it was planned"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {
            "replans": list(self.replans),
            "usual_s": self._usual_s,
            "deviated": self._deviated,
            "times": list(self._times),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.replans, self._times = list(state["replans"]), list(state["times"])
        self._usual_s, self._deviated = state["usual_s"], state["deviated"]


KEPT = (3, 2)
"""After each round but the last: at most so many plans stay."""
ROUNDS = len(KEPT) + 1
NOISE = (0.25, 0.02, 0.0)
"""Share of a step that is noise in any event, after so many visits: something may disturb the whole of the first, and
two may be equal by chance."""
NEAR = 0.03
"""A plan that leaves nothing out is kept if it is slower than the fastest by no more: so little is worth no error."""
DISTURBED = 1.0
"""By how much of the fastest step a visit may be too long: after one, the fastest plan that leaves nothing out is only
dropped if it is further behind."""
REPAID = 3
"""Times the steps of the longest trial that must be left of a run for one to start: at most a third of what is left is
spent on plans that will not be kept."""
SETTLING, AT_FIRST = 1, 4
"""Steps of a visit that do not count, as the first one with a plan allocates its buffers; and of the very first visit,
before which costs were measured."""


class PlanTrial:
    """Trains with every plan in turn; `plan` is the one to train with now, and the fastest one when `finished`.

    A round visits each plan that is left for `SETTLING` and `timed` steps, every other round in the opposite order, so
    that a drift hits all alike. A plan's time is the least of its visits' mean steps, each the mean over ranks: what
    else goes on only ever makes steps longer. Its noise is what lies between the two least. A plan that is slower than
    the fastest by more than their noise is dropped, and the trial ends with the last but one; no single visit drops all
    plans that send every element. Of plans that are as fast but for `NEAR`, or that the last round does not tell apart,
    one that sends every element in 32 or 16 bits is kept. All ranks decide by the same numbers. Nothing is lost
    between plans: residuals belong to parameters.
    """

    def __init__(self, comm: Comm, plans: Sequence[Plan], timed: int) -> None:
        self._comm, self._timed = comm, timed
        self.plans = tuple(plans)
        self._exact = [sends_all(plan) for plan in plans]
        self._seen_s: list[list[float]] = [[] for _ in plans]  # mean steps of each plan's visits, ascending
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
    def times_s(self) -> list[float | None]:
        """The least mean step of each plan; None where it was not trained with yet."""
        return [seen[0] if seen else None for seen in self._seen_s]

    @property
    def step_s(self) -> float | None:
        """What a step takes with the plan in use, disturbed as much as is usual here: the median of its visits."""
        seen = self._seen_s[self._left[self._at]]
        return median(seen) if seen else None

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

    def drop(self) -> None:
        """Try the plan in use no more: a step with it was undone. The step that is ending counts for no other one."""
        del self._left[self._at]
        self._steps_s, self._skipped = [], SETTLING + 1
        if self._at == len(self._left) > 1:
            self._end_round()
        elif self.finished:
            self._at = 0

    def _end_round(self) -> None:
        table = torch.tensor(self._visits_s, dtype=torch.float64, device=self._comm.device)
        agreed = (self._comm.all_reduce(table).wait() / self._comm.world_size).tolist()
        for number, seconds in zip(self._left, agreed, strict=True):
            self._seen_s[number] = sorted([*self._seen_s[number], seconds])
        self._visits_s, self._at = [], 0
        fastest = sorted(self._left, key=self._time_s)
        self._left = self._undecided(fastest)
        self._round += 1
        if self._round % 2:
            self._left.reverse()

    def _undecided(self, fastest: list[int]) -> list[int]:
        """Return those that may still be kept of the plans that are left, the fastest first; in the last round one."""
        best, last = fastest[0], self._round == ROUNDS - 1
        exact = next((number for number in fastest if self._exact[number]), best)
        behind_s, noise_s = self._behind_s(exact, best), self._noise_s(exact, best)
        near_s = NEAR * self._time_s(best)
        if (exact != best and behind_s + noise_s <= near_s) or (last and behind_s <= max(near_s, noise_s)):
            return [exact]
        if last:
            return [best]
        stay = [best]
        for number in fastest[1:]:
            # One that sends every element stays if it is only just slower; where it is the fastest, others must be
            # faster by more than that.
            lead_s = near_s if number == exact else -near_s if self._exact[best] else 0.0
            noise_s = self._noise_s(number, best)
            if number == exact and self._round == 0:
                noise_s = max(noise_s, DISTURBED * self._time_s(best))
            if self._behind_s(number, best) <= lead_s + noise_s:
                stay.append(number)
        most = KEPT[self._round]
        return stay[:most] if exact not in stay[most:] else [*stay[: most - 1], exact]

    def _behind_s(self, number: int, best: int) -> float:
        return self._time_s(number) - self._time_s(best)

    def _noise_s(self, *numbers: int) -> float:
        """Return by how much the times of these plans may differ where nothing but noise makes them differ."""
        seen = [self._seen_s[number] for number in numbers]
        between_s = sum(times[1] - times[0] for times in seen if len(times) > 1)
        return max(between_s, NOISE[self._round] * min(times[0] for times in seen))

    def _time_s(self, number: int) -> float:
        return self._seen_s[number][0]

    def words(self) -> str:
        """Return what every plan took that was trained with, the fastest first."""
        tried = sorted((i for i in range(len(self.plans)) if self.times_s[i] is not None), key=self._time_s)
        labels = [dict(plan.notes).get("chosen", "a plan") for plan in self.plans]
        named = (f"{labels[i]} {1e3 * self._time_s(i):.3g}" for i in tried)
        return f"{len(tried)} plans, ms a step after the forward pass: {'; '.join(named)}"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with."""
        return {
            "plans": [plan.to_json() for plan in self.plans],
            "seen_s": [list(seen) for seen in self._seen_s],
            "left": list(self._left),
            "round": self._round,
            "at": self._at,
            "steps_s": list(self._steps_s),
            "visits_s": list(self._visits_s),
            "timed": self._timed,
            "skipped": self._skipped,
        }

    @classmethod
    def resumed(cls, comm: Comm, state: dict[str, Any]) -> PlanTrial:
        """Return the trial that `state_dict` was taken of."""
        trial = cls(comm, [Plan.from_json(text) for text in state["plans"]], state["timed"])
        trial._seen_s, trial._left = [list(seen) for seen in state["seen_s"]], list(state["left"])
        trial._round, trial._at = state["round"], state["at"]
        trial._steps_s, trial._visits_s = list(state["steps_s"]), list(state["visits_s"])
        trial._skipped = state["skipped"]
        return trial


def sends_all(plan: Plan) -> bool:
    """Return whether a plan leaves nothing out: every element travels, in 32 or 16 bits."""
    specs = {segment.compressor for _, lane in plan.lanes() for segment in lane.segments}
    return all(spec is None or build(spec).lossless for spec in specs)


def too_short(left: int | None, plans: int, timed: int) -> str:
    """Return why none of so many plans is tried in the `left` steps of a run, "" if they are; None: not known."""
    most = most_steps(plans, timed)
    if plans == 1 or left is None or left >= REPAID * most:
        return ""
    return (
        f"nothing: the run ends in {left} steps, trying {plans} plans takes up to {most}, which {REPAID * most} would "
        "repay"
    )


def most_steps(plans: int, timed: int) -> int:
    """Return how many steps a trial of so many plans takes at most."""
    visits = plans + sum(min(plans, most) for most in KEPT)
    return AT_FIRST - SETTLING + visits * (SETTLING + timed)
