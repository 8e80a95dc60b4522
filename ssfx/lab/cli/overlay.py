"""`ssfx show RUN --trace`: a step of a run as it was and as it is simulated, in one Chrome trace: same tracks."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import click

from ssfx.advice.cases import step_inside
from ssfx.cli.terminal import say
from ssfx.core.errors import ConfigError
from ssfx.core.files import loads, read, write_atomic
from ssfx.core.paths import results_dir
from ssfx.core.rows import Row
from ssfx.lab.cli.outcome import BUSY_CORES
from ssfx.lab.results.store import Store
from ssfx.lab.workloads.record import records_in
from ssfx.perf_model.target import target_of
from ssfx.planning.plan import Plan
from ssfx.simulator import Simulated, simulate
from ssfx.simulator.trace import FIRST_PROCESS, TRACKS, events_of

Event = dict[str, Any]
BEGIN = "begin"
"""Category of the instants at which the runtime's traces say that a step begins."""

_NETWORK = list(TRACKS.values()).index("network")


def write_overlay(row: Row, out: Path | None, step: int | None) -> None:
    """Leave a Chrome trace of one step of a run, measured and simulated with the same plan, in `out`, and say its path.

    All ranks and the simulation begin the step at 0. `step` None is the timed one nearest their median, `out` None
    overlay.json among the run's files. ConfigError for a run without traces.
    """
    folder = _folder(row)
    ranks = {rank: _events(folder / f"trace-rank{rank}.json") for rank in range(row.case.world_size)}
    number = _step(row, folder, ranks[0], step)
    simulated = _simulated(row, folder)
    events = overlay(ranks, number, simulated, f"{row.case.label}, the same plan")
    out = out or folder / "overlay.json"
    try:
        write_atomic(out, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    measured_s = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X" and event["pid"] == 0) / 1e6
    say(
        f"step {number} of {row.case.label}: {1e3 * measured_s:.1f} ms on rank 0, simulated "
        f"{1e3 * simulated.iteration_s:.1f} ms with the plan that ran and the times known of {row.case.cluster}"
    )
    for line in _apart(events, simulated, row):
        say(line)
    if row.case.device == "cuda":
        say("on a GPU the measured spans say when the host launched work, not when the device did it")
    for line in simulated.outside:
        say(f"outside what was measured: {line}")
    click.echo(f"trace: {out}")


def _apart(events: Sequence[Mapping[str, Any]], simulated: Simulated, row: Row) -> Iterator[str]:
    """Yield why the measured step and the simulated one differ: the stages that do so most, and a busy machine."""
    measured: dict[str, float] = {}
    for event in events:
        if event["ph"] == "X" and event["pid"] == 0:
            measured[event["name"]] = measured.get(event["name"], 0.0) + event["dur"] / 1e6
    predicted_s: dict[str, float] = {}
    for task in simulated.tasks:
        predicted_s[task.stage] = predicted_s.get(task.stage, 0.0) + task.seconds
    shared = sorted(set(measured) & set(predicted_s), key=lambda name: -abs(measured[name] - predicted_s[name]))
    parts = [f"{name} {1e3 * measured[name]:.1f} ms, simulated {1e3 * predicted_s[name]:.1f}" for name in shared[:3]]
    if parts:
        yield f"most of the difference: {'; '.join(parts)}"
    if (busy := row.manifest.get("background_cores") or 0.0) > BUSY_CORES:
        yield f"the machine was busy: other programs used up to {busy:.1f} cores, so that measured times are too long"


def _folder(row: Row) -> Path:
    """Return the folder of the run's files; ConfigError where it has no spans."""

    if row.origin.kind == "simulated":
        raise ConfigError(f"run {row.run_id} was simulated, nothing real was traced; use ssfx simulate --trace")
    files = Store(results_dir()).attempt_files(
        row.case, [f"trace-rank{rank}.json" for rank in range(row.case.world_size)]
    )
    if not files or not all(path.exists() for path in files):
        raise ConfigError(f"run {row.run_id} recorded no spans; run its words again with trace=true, as a new run")
    return files[0].parent


def _events(path: Path) -> list[dict[str, Any]]:
    return read(path, _parsed, what="not a trace: run the case again")


def _parsed(text: str) -> list[dict[str, Any]]:
    return [dict(event) for event in loads(text)["traceEvents"]]


def _step(row: Row, folder: Path, events: list[dict[str, Any]], asked: int | None) -> int:
    """Return the step to show: `asked`, or of those that were timed under the final plan the most usual one."""

    known = tuple(event["args"]["step"] for event in events if event.get("cat") == BEGIN)
    if not known:
        raise ConfigError(f"run {row.run_id} was traced by an older ssfx, without its steps; run it again")
    if asked is not None:
        if asked not in known:
            raise ConfigError(f"run {row.run_id} has no traced step {asked}, only {known[0]} to {known[-1]}")
        return asked
    records = records_in(folder / "rank0.jsonl", torn=False)
    times = {one.step: one.iteration_s for one in records if not one.observed and not one.skipped}
    timed = {times[step]: step for step in known if step in times and step >= row.case.warmup_steps}
    if not timed:
        raise ConfigError(f"run {row.run_id} has no traced step after its warm-up; name one with --step")
    return int(timed[median_low(timed)])


def _simulated(row: Row, folder: Path) -> Simulated:
    """Return the step of the plan that ran, on what is known of its cluster and model."""

    plan = read(folder / "plan.json", Plan.from_json, what="not a plan: run the case again")
    target = target_of(row.case)
    try:
        profile = target.profile.in_order(plan.tensors)
    except KeyError as error:
        raise ConfigError(
            f"the profile of {row.case.model} lacks {error}; run: ssfx profile model={row.case.model}"
        ) from None
    inside = step_inside(plan, profile, target.cluster, row.case.accumulate)
    return simulate(plan, profile, target.system, accumulate=row.case.accumulate, inside=inside)


# ---- both in one trace ----


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
