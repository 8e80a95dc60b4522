"""From the results of all ranks to one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.lazy import statistics
from ssfx.core.origin import Kind, Origin
from ssfx.core.rows import LOSS_STEPS, POINTS, Row
from ssfx.lab.engines.job import Job
from ssfx.lab.results.density_bins import merged
from ssfx.lab.results.manifest import describe, hardware, versions
from ssfx.lab.worker.faults import fired
from ssfx.lab.workloads.metrics.tally import better
from ssfx.lab.workloads.record import StepRecord, records_in
from ssfx.planning.rounds import Rounds
from ssfx.schemes import schemes

SAMPLED = ("iteration_s", "forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "comm_s", "step_s")
CONTROLS = ("control_forward_s", "control_backward_s")


def collect(job: Job, kind: Kind, code: Mapping[str, Any], environment: Mapping[str, str], *, nodes: int = 1) -> Row:
    """Return the row of a job that is done; RunError when its ranks did not execute the same plan on the same data.

    Times and counts are rank 0's, memory and the slowest forward pass are of all ranks. `code` is what `manifest.code`
    said when the ranks were started. Steps done by an earlier attempt, before the checkpoint that this one resumed,
    count too. Ranks are spread over `nodes` machines, the first of them on this one.
    """
    results = job.results()
    first = results[0]
    whole, *other_ranks = (_records(job, rank) for rank in range(job.case.trained_ranks))
    timed, note = _timed(job.case, whole)
    if (rounds := _rounds(job.case)) is not None and len(timed) < 2 * rounds.turn:
        note += ("times are of fewer steps than a whole round: more steps",)
    records, *others = (_by_round(job.case, [each[step] for step in timed]) for each in (whole, *other_ranks))
    metrics = {
        **_statistics(job.case, records),
        **_profiling(whole),
        **first["metrics"],
        **target_metrics(job.case, whole),
    }
    forward_s = (max(each.forward_s for each in step) for step in zip(records, *others, strict=True))
    metrics["slowest_forward_s"] = float(statistics.median(forward_s))
    samples = {name: [getattr(record, name) for record in records] for name in SAMPLED} | _passes([records, *others])
    metrics |= {name: float(statistics.median(samples[name])) for name in CONTROLS if name in samples}
    metrics["peak_memory_bytes"] = max(result["peak_memory_bytes"] for result in results)
    machine = {**hardware(), "gpus": first["gpus"]}
    manifest = {
        "code": dict(code),
        "versions": versions(),
        "hardware": machine,
        "environment": dict(environment),
        "rank_cores": [result["cores"] for result in results],
        "started": first["started"],
        "stopped": first["stopped"],
        "attempt": job.attempt,
        "resumed_from_step": first["first_step"],
        "exit_reason": "finished",
        "seed": job.case.seed,
        "dataset_fingerprint": _agreed(job, results, "dataset_fingerprint"),
        "plan_digest": _agreed(job, results, "plan_digest"),
        "background_cores": _background_cores(results[: max(1, len(results) // nodes)]),
        "faults": fired(job.run_dir),
        "notes": list(dict.fromkeys([*(note for result in results for note in result["notes"]), *note])),
    }
    origin = Origin(kind, describe(machine), first["stopped"], versions=versions())
    ratios = merged(record.density_ratios for record in records if not record.skipped)
    try:
        return Row(job.case.run_id, job.case, metrics, origin, manifest, samples, ratios, curve_of(whole))
    except ValueError as error:
        raise RunError(f"{job.attempt_dir}: what its ranks left makes no row ({error})") from None


def _records(job: Job, rank: int) -> list[StepRecord]:
    """The rank's records, one a step; a step done twice counts as it was done last."""
    by_step: dict[int, StepRecord] = {}
    for attempt in range(1, job.attempt + 1):
        path = job.run_dir / f"attempt-{attempt}" / f"rank{rank}.jsonl"
        if not path.exists():
            continue
        for record in records_in(path, torn=attempt < job.attempt):  # only a rank that was killed leaves half a line
            by_step[record.step] = record
    missing = set(range(job.case.steps)) - set(by_step)
    if missing:
        raise RunError(f"{job.attempt_dir / f'rank{rank}.jsonl'}: step {min(missing)} is missing")
    return [by_step[step] for step in range(job.case.steps)]


def _timed(case: Case, records: Sequence[StepRecord]) -> tuple[list[int], tuple[str, ...]]:
    """Return the steps that count, and a note if they are not of the plan that was chosen.

    They come after the warm-up, and are none in which a scheme observed gradients or tried plans, if there are others.
    """
    after = range(case.warmup_steps, case.steps)
    settled = [step for step in after if not records[step].observed]
    if settled or not after:
        return settled, ()
    return list(after), ("in all steps after the warm-up plans were still tried; times are of all of them: more steps",)


_SECONDS = ("iteration_s", "forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")


def _rounds(case: Case) -> Rounds | None:
    return schemes[case.scheme].online(dict(case.scheme_options)).rounds


def _by_round(case: Case, records: list[StepRecord]) -> list[StepRecord]:
    """Return the average step of each whole round, of a scheme of rounds: a step without its share says nothing."""
    rounds = _rounds(case)
    if rounds is None:
        return records
    before = schemes[case.scheme].online(dict(case.scheme_options)).dense_steps
    groups: dict[int, list[StepRecord]] = {}
    for record in records:
        groups.setdefault((record.step - before) // rounds.turn, []).append(record)
    whole = [group for group in groups.values() if len(group) == rounds.turn] or [records]
    averages: list[dict[str, Any]] = [
        {name: statistics.fmean(getattr(one, name) for one in group) for name in _SECONDS} for group in whole
    ]
    return [replace(group[-1], **average) for group, average in zip(whole, averages, strict=True)]


def _passes(ranks: Sequence[Sequence[StepRecord]]) -> dict[str, list[float]]:
    """Return what else decided how long each step of a run with passes without exchange took; empty without them.

    The pass before it, of the slowest rank, and the elements selected over all, of the rank that selected most.
    """
    if any(record.control_forward_s is None for rank in ranks for record in rank):
        return {}
    steps = list(zip(*ranks, strict=True))
    passes = [max(((one.control_forward_s, one.control_backward_s) for one in step), key=sum) for step in steps]
    found = dict(zip(CONTROLS, map(list, zip(*passes, strict=True)), strict=True))
    return found | {"greatest_density": [max(one.achieved_density for one in step) for step in steps]}


def _statistics(case: Case, records: Sequence[StepRecord]) -> dict[str, float | None]:
    def median(name: str) -> float:
        return float(statistics.median(getattr(record, name) for record in records))

    iteration_s = median("iteration_s")
    parts = {name: median(name) for name in ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s")}
    return {
        "iteration_s": iteration_s,
        "iteration_p10_s": _percentile(10, records),
        "iteration_p90_s": _percentile(90, records),
        **parts,
        "other_s": max(0.0, iteration_s - sum(parts.values())),
        "comm_s": median("comm_s"),
        "throughput_samples_per_s": case.world_size * case.batch_size * case.accumulate / iteration_s,
        "contributed_bytes": median("contributed_bytes"),
        "sent_bytes": median("sent_bytes"),
        "achieved_density": _mean([record.achieved_density for record in records]),
        "tensor_missing_rate": _mean([record.tensor_missing_rate for record in records]),
        "loss": _mean([record.loss for record in records[-LOSS_STEPS:]]),
    }


def _profiling(records: Sequence[StepRecord]) -> dict[str, float | None]:
    """Return what observing the first steps and planning took of all steps; nothing where a scheme plans at once."""
    observed = [record for record in records if record.observed]
    if not observed:
        return {}
    plan_s = sum(record.plan_s for record in records)
    profile_s = sum(record.iteration_s - record.plan_s for record in observed)
    share = (profile_s + plan_s) / sum(record.iteration_s for record in records)
    return {"profiled_steps": len(observed), "profile_s": profile_s, "plan_s": plan_s, "profile_share": share}


def _percentile(percent: int, records: Sequence[StepRecord]) -> float:
    times = [record.iteration_s for record in records]
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1] if len(times) > 1 else times[0]


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, None if any value is missing: a mean over the rest would be a value that was never observed."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def _agreed(job: Job, results: Sequence[Mapping[str, Any]], key: str) -> Any:
    for result in results:
        if result[key] != results[0][key]:
            raise RunError(
                f"run {job.case.run_id}: rank {result['rank']} has {key} {result[key]}, rank 0 has {results[0][key]}; "
                f"see {job.attempt_dir}"
            )
    return results[0][key]


def _background_cores(results: Sequence[Mapping[str, Any]]) -> float | None:
    """Cores kept busy by anything but the ranks while rank 0 ran; a disturbed run shows here and nowhere else."""
    wall_s = results[0]["wall_s"]
    busy_s = results[0]["machine_busy_s"] - sum(result["own_busy_s"] for result in results)
    return round(max(0.0, busy_s / wall_s), 3) if wall_s > 0 else None


Column = list[float | None]


def curve_of(records: Sequence[StepRecord]) -> dict[str, Column]:
    """Return the curve (see ssfx.core.rows) from the records of all steps of one rank, by step; {} without points.

    Of more than POINTS points, POINTS are kept, equally spaced and with the last one.
    """
    measured = [index for index, record in enumerate(records) if record.evaluated is not None]
    time_s = list(accumulate(record.iteration_s for record in records))
    sent_bytes = list(accumulate(record.sent_bytes for record in records))
    names = sorted({name for index in measured for name in records[index].evaluated or ()})
    curve: dict[str, Column] = {name: [] for name in ("step", "time_s", "sent_bytes", "loss", "density", *names)}
    before = 0
    for index in _thinned(measured):
        since, point = records[before : index + 1], records[index].evaluated or {}
        losses = [record.loss for record in since if record.loss is not None]
        curve["step"].append(records[index].step + 1)
        curve["time_s"].append(_digits(time_s[index]))
        curve["sent_bytes"].append(sent_bytes[index])
        curve["loss"].append(_digits(sum(losses) / len(losses)) if losses else None)
        curve["density"].append(_digits(sum(record.achieved_density for record in since) / len(since)))
        for name in names:
            value = point.get(name)
            curve[name].append(None if value is None else _digits(value))
        before = index + 1
    return curve if measured else {}


def target_metrics(case: Case, records: Sequence[StepRecord]) -> dict[str, float | None]:
    """Return steps and seconds until the case's target was first reached, None where it never was; {} without a target.

    Seconds are the sum of the iterations up to there, as measured; quality is known only where it was measured.
    """
    if case.target_metric is None or case.target_value is None:
        return {}
    for index, record in enumerate(records):
        value = (record.evaluated or {}).get(case.target_metric)
        if value is not None and better(case.target_metric, value, case.target_value):
            seconds = sum(one.iteration_s for one in records[: index + 1])
            return {"steps_to_target": record.step + 1, "time_to_target_s": seconds}
    return {"steps_to_target": None, "time_to_target_s": None}


def _thinned(indices: Sequence[int]) -> Sequence[int]:
    if len(indices) <= POINTS:
        return indices
    return [indices[round((i + 1) * len(indices) / POINTS) - 1] for i in range(POINTS)]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
