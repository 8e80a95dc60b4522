"""The clock of what computes in a trace: when what a host had launched so far was done, by correlation ids."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import median

from ssfx.perf_model.trace_file import LAUNCHES, WORK, Event, end

_KERNEL = re.compile(r"nccl\w*?Kernel_(?P<name>[A-Za-z]+)")
WAITING = 0.1
"""Share of a pass in which the device only exchanges, from which on a word is said."""
BUSY = 0.5
"""The same of computing, below which a pass with exchanges that are no all-reduce gets one, too."""
LAUNCHED = 0.9
"""Share of kernels whose launch is in the trace, below which a word is said."""
_ALL_REDUCES = {"allreduce", "all_reduce"}

Pass = tuple[float, float]
"""When a pass began and ended on what computes, in microseconds."""


class TraceDevice:
    """The host's clock, or on a GPU when the kernels launched so far have ended; exchanges of NCCL do not count."""

    def __init__(self, events: Sequence[Event]) -> None:
        launched = {
            event["args"]["correlation"]: event["ts"]
            for event in events
            if event["cat"] in LAUNCHES and "correlation" in event["args"]
        }
        every = [event for event in events if event["cat"] in WORK]
        work = _with_launches(every, launched)
        self._missing = len(every) - len(work), len(every)
        self._exchanges = [event for _, event in work if "nccl" in event["name"].lower()]
        kernels = sorted(
            (launch, event["ts"], end(event)) for launch, event in work if "nccl" not in event["name"].lower()
        )
        self._launched = [launch for launch, _, _ in kernels]
        self._starts = [start for _, start, _ in kernels]
        self._ended = list(accumulate((ended for _, _, ended in kernels), max))
        self._computing = _united((start, ended) for _, start, ended in kernels)

    def when(self, ts: float) -> float:
        """Return when everything that was launched up to `ts` of the host had been done, in microseconds."""
        count = bisect_right(self._launched, ts)
        return max(ts, self._ended[count - 1]) if count else ts

    def took(self, event: Event) -> float:
        """Return how long what was launched during `event` took; an exchange that it waited for does not count."""
        first, last = bisect_right(self._launched, event["ts"]), bisect_right(self._launched, end(event))
        if first == last:
            return float(event["dur"])
        return float(self._ended[last - 1] - min(self._starts[first:last]))

    def words(self, iterations: Sequence[Mapping[str, Pass]]) -> list[str]:
        """Return what is to be said of the passes of iterations: launches that are missing, and waiting."""
        missing, every = self._missing
        said = [self._waiting(iterations)] if every else []
        if missing > (1 - LAUNCHED) * every:
            said.append(f"the launches of {missing} of {every} kernels are not in the trace, so these count nowhere")
        return [word for word in said if word]

    def _waiting(self, iterations: Sequence[Mapping[str, Pass]]) -> str:
        """Return a word on waiting for exchanges within passes that counts as computing; "" where there is none.

        The device waits while nothing but exchanges runs on it. Where it computes for less than half of a pass with
        exchanges other than all-reduces, the host may be what waits.
        """
        exchanging = _united((event["ts"], end(event)) for event in self._exchanges)
        either = _united([*self._computing, *exchanging])
        words = []
        for name in ("forward", "backward"):
            passes = [one[name] for one in iterations]
            span = median(ended - began for began, ended in passes)
            busy = median(_inside(self._computing, *one) for one in passes)
            alone = median(_inside(either, *one) - _inside(self._computing, *one) for one in passes)
            inside = [e for e in self._exchanges if any(began <= e["ts"] < ended for began, ended in passes)]
            kinds = Counter(map(_collective, inside))
            others = {kind for kind in kinds if kind.lower() not in _ALL_REDUCES}
            if span > 0 and (alone >= WAITING * span or (busy < BUSY * span and others)):
                listed = ", ".join(f"{count / len(passes):.3g} {kind}" for kind, count in sorted(kinds.items()))
                words.append(
                    f"{name} takes {1e-3 * span:.3g} ms, in which kernels compute for {1e-3 * busy:.3g} ms and "
                    f"exchanges run alone for {1e-3 * alone:.3g} ms ({listed or 'none'})"
                )
        return f"{', and '.join(words)}: waiting for them counts as computing" if words else ""


def _with_launches(every: Sequence[Event], launched: Mapping[object, float]) -> list[tuple[float, Event]]:
    """Return what a device did, with when it was launched; what a stream did first, before the trace began.

    A host runs ahead of its device, so that a trace begins with work of which it has no launch.
    """
    found, begun = list[tuple[float, Event]](), set[tuple[object, object]]()
    for event in every:
        stream = event["args"].get("device"), event["args"].get("stream")
        launch = launched.get(event["args"].get("correlation"))
        if launch is not None:
            begun.add(stream)
            found.append((launch, event))
        elif stream not in begun:
            found.append((float("-inf"), event))
    return found


def _collective(event: Event) -> str:
    """Return what a kernel of NCCL or RCCL did: by its name, or where all have the same, by what Kineto notes of it."""
    match = _KERNEL.search(event["name"])
    name = match["name"] if match else "NCCL"
    return str(event["args"].get("Collective name") or name) if name in ("Generic", "NCCL") else name


def _united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, with those that touch as one."""
    found: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if found and began <= found[-1][1]:
            found[-1] = (found[-1][0], max(ended, found[-1][1]))
        else:
            found.append((began, ended))
    return found


def _inside(united: Sequence[tuple[float, float]], began: float, ended: float) -> float:
    """Return how much of the time from `began` to `ended` the spans cover."""
    first = max(0, bisect_right(united, (began, float("inf"))) - 1)
    covered = 0.0
    for start, last in united[first:]:
        if start >= ended:
            break
        covered += max(0.0, min(ended, last) - max(began, start))
    return covered
