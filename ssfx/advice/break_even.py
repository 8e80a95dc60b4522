"""The break-even bandwidth: the largest rate of the bottleneck link at which a scheme still beats tuned dense."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, inf, log10

from ssfx.advice.setting import TUNED, Setting, Trial
from ssfx.core.numbers import rounded
from ssfx.core.progress import doing

STEPS = 256
"""Rates are distinguished in steps of 10 ** (1 / STEPS), 0.9 %."""

MARKS = range(-2 * STEPS, 4 * STEPS + 1, 3 * STEPS // 2)
"""The steps that are scanned: 0.01, 0.32, 10, 320 and 10000 Gbit/s."""

_NEAR = 1.1
_EQUAL = 1e-9  # of two times that differ by less, none is better: a plan that stayed dense is dense


@dataclass(frozen=True)
class BreakEven:
    """A scheme is faster than tuned dense below `gbps`: 0 never, infinity always.

    `loses_at_gbps`: scanned rates below it at which it is not, because the difference is not monotone.
    """

    gbps: float
    loses_at_gbps: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return a cell of a table."""
        rates = ", ".join(rounded(gbps, 3) for gbps in self.loses_at_gbps)
        always = f"{rate(MARKS[-1]):.0f} Gbit/s and more" if rates else "always"
        text = {0.0: "never", inf: always}.get(self.gbps, f"{rounded(self.gbps, 3)} Gbit/s")
        return f"{text}, but not at {rates}" if rates else text


def highest_crossing(gap_s: Callable[[int], float], marks: Sequence[int]) -> BreakEven:
    """Return where `gap_s` stops being negative: a scheme's seconds less dense ones, by step on the scale of rates.

    The ascending `marks` are scanned; above the last one at which the scheme wins, its interval is narrowed down.
    """
    gaps = [gap_s(mark) for mark in marks]
    winning = [i for i, gap in enumerate(gaps) if gap < 0]
    if not winning:
        return BreakEven(0.0)
    last = winning[-1]
    loses_at = tuple(rate(marks[i]) for i in range(last) if i not in winning)
    if last == len(marks) - 1:
        return BreakEven(inf, loses_at)
    low, high = (marks[last], gaps[last]), (marks[last + 1], gaps[last + 1])
    tries = 0
    while high[0] - low[0] > 1:
        tries += 1
        middle = (low[0] + high[0]) // 2 if tries % 3 == 0 else _crossing(low, high)
        found = middle, gap_s(middle)
        low, high = (found, high) if found[1] < 0 else (low, found)
    return BreakEven(rate(low[0]), loses_at)


def _crossing(low: tuple[int, float], high: tuple[int, float]) -> int:
    """Return the step strictly between two where a gap that is linear in seconds per byte crosses zero."""
    slow, fast = rate(-low[0]), rate(-high[0])
    crossing = slow + (fast - slow) * low[1] / (low[1] - high[1])
    return min(max(floor(-STEPS * log10(crossing)), low[0] + 1), high[0] - 1)


def rate(step: int) -> float:
    """Return the rate in Gbit/s at a step of the scale; 0 is 1 Gbit/s."""
    return float(10 ** (step / STEPS))


class BreakEvens:
    """Break-evens in one setting with the best of the `dense` schemes; plans are made anew at every rate.

    Between two rates that are scanned, tuned dense is the best of what is within 10 % of the best at either of them.
    """

    def __init__(self, setting: Setting, dense: Iterable[str] = TUNED) -> None:
        self._setting, self._dense = setting, tuple(dense)
        self._marks = sorted({*MARKS, round(STEPS * log10(setting.gbps))})
        self._at = cache(lambda step: setting.at(rate(step)))
        self.dense_s = cache(self._dense_s)
        self._shortlist = cache(self._near_best)

    @property
    def possible(self) -> bool:
        """False where exchanges were measured and so are no function of the link's rate."""
        faster = self._setting.at(2 * self._setting.gbps)
        return dict(faster.system.exchange) != dict(self._setting.system.exchange)

    def of(self, scheme: str) -> BreakEven:
        """Return the break-even of `scheme` with tuned dense."""

        def gap_s(step: int) -> float:
            dense_s = self.dense_s(step)
            found_s = self._at(step).best(scheme).iteration_s - dense_s
            return found_s if abs(found_s) > _EQUAL * dense_s else 0.0

        with doing(f"looking for the bandwidth below which {scheme} is faster"):
            return highest_crossing(gap_s, self._marks)

    def alone(self, names: Iterable[str]) -> BreakEven:
        """Return the rate below which one device alone does more than all of them with any of `names`."""
        alone_s = self._setting.cluster.world_size * self._setting.alone_s
        return highest_crossing(
            lambda step: alone_s - min(self._at(step).best(name).iteration_s for name in names), self._marks
        )

    def _dense_s(self, step: int) -> float:
        """Return the seconds of tuned dense at a step of the scale."""
        below = max(mark for mark in self._marks if mark <= step)
        above = min(mark for mark in self._marks if mark >= step)
        near = {**self._shortlist(below), **self._shortlist(above)}
        return min(self._at(step).trial(one.scheme, one.options).iteration_s for one in near.values())

    def _near_best(self, mark: int) -> dict[str, Trial]:
        """Return the variants of dense schemes that are almost the best at a mark, by title."""
        setting = self._at(mark)
        trials = [setting.trial(scheme, given) for scheme in self._dense for given in setting.variants(scheme)]
        least_s = min(one.iteration_s for one in trials)
        return {one.title: one for one in trials if one.iteration_s <= _NEAR * least_s}
