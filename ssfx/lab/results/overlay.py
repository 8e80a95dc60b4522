"""One real step and its simulation in one Chrome trace, to be laid over each other: same zero, same tracks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ssfx.simulator.result import Simulated
from ssfx.simulator.trace import FIRST_PROCESS, TRACKS, events_of

Event = dict[str, Any]
BEGIN = "begin"
"""Category of the instants at which the runtime's traces say that a step begins."""

_NETWORK = list(TRACKS.values()).index("network")


def steps_in(events: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the numbers of the steps whose begin a runtime's trace has, in order."""
    return tuple(event["args"]["step"] for event in events if event.get("cat") == BEGIN)


def overlay(ranks: Mapping[int, Sequence[Event]], step: int, simulated: Simulated, name: str) -> list[Event]:
    """Return the events of real step `step` of each rank in `ranks` and those of its simulation, a process each.

    Every process begins its step at 0, by its own clock, so that how far ranks are apart is not shown. Spans of a track
    do not overlap: what the training thread does inside backward interrupts backward, and an exchange that was issued
    while an earlier one was under way is drawn from the end of that one, with `waited_us` from its issue to there.
    """
    found: list[Event] = []
    for rank, events in sorted(ranks.items()):
        begins = [event for event in events if event.get("cat") == BEGIN and event["args"]["step"] == step]
        if not begins:
            raise ValueError(f"the trace of rank {rank} has no step {step}")
        zero_us = begins[-1]["ts"]
        found += _names(rank, f"measured rank {rank}, step {step}")
        tracks: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            if event["ph"] == "X" and event["args"]["step"] == step and event["ts"] >= zero_us:
                tracks[event["tid"]].append({**event, "ts": event["ts"] - zero_us})
        for track, spans in sorted(tracks.items()):
            found += _one_at_a_time(spans) if track == _NETWORK else _cut(spans)
    drawn = list(events_of(name, simulated, FIRST_PROCESS))
    exchanges = [event for event in drawn if event["ph"] == "X" and event["tid"] == _NETWORK]
    return [*found, *(event for event in drawn if event not in exchanges), *_one_at_a_time(exchanges)]


def _names(process: int, name: str) -> Iterator[Event]:
    yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
    for number, track in enumerate(TRACKS.values()):
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": number, "args": {"name": track}}


def _one_at_a_time(spans: Iterable[Event]) -> Iterator[Event]:
    """Yield spans, each from the end of the one before it at the earliest."""
    reached_us = 0.0
    for span in sorted(spans, key=lambda span: float(span["ts"])):
        start_us, end_us = max(span["ts"], reached_us), span["ts"] + span["dur"]
        if end_us > start_us:
            args = {**span.get("args", {}), "waited_us": start_us - span["ts"]}
            yield {**span, "ts": start_us, "dur": end_us - start_us, "args": args}
            reached_us = end_us


def _cut(spans: Iterable[Event]) -> Iterator[Event]:
    """Yield the parts of spans, which lie inside or after each other, in which no later one runs."""
    open_spans: list[Event] = []
    at_us = 0.0

    def until(time_us: float) -> Iterator[Event]:
        """Yield what runs from `at_us` to `time_us`."""
        nonlocal at_us
        while open_spans and at_us < time_us:
            top = open_spans[-1]
            end_us = min(time_us, top["ts"] + top["dur"])
            if end_us > at_us:
                yield {**top, "ts": at_us, "dur": end_us - at_us}
                at_us = end_us
            if top["ts"] + top["dur"] <= time_us:
                open_spans.pop()
        at_us = max(at_us, time_us)

    for span in sorted(spans, key=lambda span: (float(span["ts"]), -float(span["dur"]))):
        yield from until(span["ts"])
        open_spans.append(span)
    yield from until(max((span["ts"] + span["dur"] for span in open_spans), default=at_us))
