"""Chrome/Perfetto traces of simulated steps, in the tracks, names and categories of the runtime's own traces."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ssfx.simulator.pricing.task import Resource, Task
from ssfx.simulator.result import Simulated

TRACKS: dict[Resource, str] = {
    "device": "compute",
    "host": "host",
    "network": "network",
    "copy_out": "copy to host",
    "copy_in": "copy from host",
}
"""Resources and the tracks that show them; the first three are the runtime's."""

SHARDED_TRACKS: dict[Resource, str] = {
    "replicas": "network of replicas",
    "reduce_stream": "sums over shards",
    "replica_stream": "sums over replicas",
    "gather_stream": "gathers of weights",
}
"""Those of sharded models, which other traces do not show."""

FIRST_PROCESS = 100_000
"""Number of the first simulated process, above every rank, so that a measured trace can be loaded beside it."""

_TRACK_NUMBERS = {resource: number for number, resource in enumerate((*TRACKS, *SHARDED_TRACKS))}


def save(steps: Mapping[str, Simulated], path: Path) -> None:
    """Write a Chrome trace of `steps` to `path`, wherever that leads."""
    path.write_text(chrome_trace(steps))


def chrome_trace(steps: Mapping[str, Simulated]) -> str:
    """Return a Chrome trace of `steps` by name, each a process that begins at 0; open it in Perfetto."""
    events = [
        event for i, (name, step) in enumerate(steps.items()) for event in events_of(name, step, FIRST_PROCESS + i)
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def events_of(name: str, step: Simulated, process: int) -> Iterator[dict[str, object]]:
    """Yield the events of a step as process number `process`, in microseconds from its beginning."""
    yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": f"simulated {name}"}}
    used = {task.resource for task in step.tasks}
    shown = {**TRACKS, **{resource: track for resource, track in SHARDED_TRACKS.items() if resource in used}}
    for resource, track in shown.items():
        number = _TRACK_NUMBERS[resource]
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": number, "args": {"name": track}}
    for span in _spans(step):
        yield {
            "name": f"{span.stage} {span.detail}".strip(),
            "cat": span.stage,
            "ph": "X",
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
            "pid": process,
            "tid": _TRACK_NUMBERS[span.resource],
        }


class _Span(NamedTuple):
    stage: str
    detail: str
    resource: Resource
    lane: int
    start_s: float
    end_s: float


def _spans(step: Simulated) -> Iterator[_Span]:
    """Yield one span where the runtime has one: an exchange with all its phases, decoding all lanes, the wait."""
    for resource in _TRACK_NUMBERS:
        span: _Span | None = None
        last_s = 0.0
        for task in step.tasks:
            if task.resource != resource:
                continue
            if resource == "device" and task.start_s > last_s:
                if span:
                    yield span
                span = _Span("wait", "", resource, -1, last_s, task.start_s)
            last_s = task.end_s
            if task.end_s == task.start_s:
                continue
            later = _span(task)
            if span and span[:4] == later[:4] and later.stage != "backward":
                span = span._replace(end_s=later.end_s)
                continue
            if span:
                yield span
            span = later
        if span:
            yield span


def _span(task: Task) -> _Span:
    whole = task.resource == "device" and task.stage in ("forward", "decompress", "step", "other")
    detail, lane = ("", -1) if whole else (task.name, task.lane)
    return _Span(task.stage, detail, task.resource, lane, task.start_s, task.end_s)
