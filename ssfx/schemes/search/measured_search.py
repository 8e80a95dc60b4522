"""MergeComp's search by measuring: which cut to train with next, given how long iterations took with earlier ones.

The search itself knows no clock: it proposes a cut, takes the seconds, and proposes another. The probes' times are its
whole state, so every rank that takes the same times proposes the same cuts. Source: D-47
(measured mode; MergeComp's public scheduler).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from statistics import mean
from typing import Any

MIN_GAIN = 0.01
"""Times closer than this share are measured twice before they are compared, and a neighbour of the best cut must be
better by more, because measured times are noisy."""
_REPEATS = 2


class MeasuredSearch:
    """The cut into two groups after which iterations are shortest: about 2 log2(num_tensors) probes, twice if close.

    `cut` is what to train with now; `add` takes the mean seconds of an iteration with it. `finished`: `cut` is the
    answer. As in the public code the first `warmup` probes, of the middle cut, count for nothing, times are kept,
    and neighbours that are compared lie `step` apart; a last walk along the cuts that the stride skipped is ours.
    `probe_times_s` continues a search from the probes it made before. Raises ValueError for fewer than two tensors.
    """

    def __init__(
        self, num_tensors: int, *, step: int = 2, warmup: int = 5, probe_times_s: Sequence[float] = ()
    ) -> None:
        if num_tensors < 2:
            raise ValueError(f"there is nothing to cut in a model of {num_tensors} tensor")
        self.probe_times_s: list[float] = []
        self.finished = False
        self.cut = num_tensors // 2
        self._search = _search(num_tensors, step, warmup)
        self._advance(None)
        for seconds in probe_times_s:
            self.add(seconds)

    def add(self, seconds: float) -> None:
        """Take the mean seconds of an iteration with `cut`, the same number on every rank; propose the next cut."""
        if self.finished:
            raise ValueError(f"the search has ended with cut {self.cut}")
        self.probe_times_s.append(seconds)
        self._advance(seconds)

    def _advance(self, seconds: float | None) -> None:
        try:
            self.cut = next(self._search) if seconds is None else self._search.send(seconds)
        except StopIteration as end:
            self.cut, self.finished = end.value, True


def most_probes(num_tensors: int, *, step: int, warmup: int) -> int:
    """Return a number of probes that no search among so many tensors exceeds."""
    halvings = max(1, num_tensors).bit_length()
    return warmup + 2 * _REPEATS * halvings + 2 * (_REPEATS + 1) * (step + 1)


def parse_cuts(text: str | int) -> tuple[int, ...]:
    """Return the cuts that "8" or "6,10" names, none for empty text; ValueError unless they ascend from 1."""
    parts = [part.strip() for part in str(text).split(",")] if text != "" else []
    cuts = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    if any(b <= a for a, b in zip((0, *cuts), cuts, strict=False)):
        raise ValueError(f'cuts must be ascending numbers of tensors, such as "8" or "6,10"; got {text!r}')
    return cuts


def probe_options(given: Mapping[str, Any], cut: int) -> dict[str, Any]:
    """Return the options of mergecomp that plan one probe: those `given`, with the search replaced by its cut."""
    search = ("search", "step", "probe_iters", "probe_warmup")
    return {**{key: value for key, value in given.items() if key not in search}, "cuts": str(cut)}


Probes = Generator[int, float, float]


def _search(num_tensors: int, step: int, warmup: int) -> Generator[int, float, int]:
    for _ in range(warmup):
        yield num_tensors // 2
    times_s: dict[int, list[float]] = {}

    def timed(cut: int, repeats: int = 1) -> Probes:
        times = times_s.setdefault(cut, [])
        while len(times) < repeats:
            times.append((yield cut))
        return mean(times)

    def falls(cut: int, neighbour: int, least: float) -> Generator[int, float, bool]:
        """Return whether iterations are shorter with `neighbour`, by more than the share `least`."""
        here_s, there_s = (yield from timed(cut)), (yield from timed(neighbour))
        if abs(here_s - there_s) <= MIN_GAIN * here_s:
            here_s, there_s = (yield from timed(cut, _REPEATS)), (yield from timed(neighbour, _REPEATS))
        return here_s - there_s > least * here_s

    start, end = 1, num_tensors - 1
    while start < end - 1:
        middle = (start + end) // 2
        neighbour = min(middle + step, num_tensors - 1)
        if (yield from falls(middle, neighbour, 0.0)):
            start = neighbour
        else:
            end = middle
    inner = [cut for cut in times_s if 1 < cut < num_tensors - 1]  # the public code takes no other cut
    if not inner:
        return num_tensors // 2
    best = min(inner, key=lambda cut: mean(times_s[cut]))
    for direction in (-1, 1):
        for _ in range(step):
            if not 1 < best + direction < num_tensors - 1:
                break
            if not (yield from falls(best, best + direction, MIN_GAIN)):
                break
            best += direction
    return best
