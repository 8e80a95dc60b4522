"""Generated parts of pages that show recorded runs: emulated networks, one H200, long runs in shards."""

from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import fmean

from experiments.common.pages.markdown import none_yet, table
from experiments.common.validation.one_gpu import SHEET, launched_of, nominal_s
from ssfx.core.files import loads, read
from ssfx.core.paths import reference_dir
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import EXPERIMENT, at_dense_rate, dense_runs, is_dense, place
from ssfx.lab.calibration.rounds_quality import method_of, with_twins
from ssfx.lab.results.manifest import describe
from ssfx.perf_model.measured_gpus import MeasuredStep, measured_gpu
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.recorded_network import batch_text, family_of

RECORD = "emulated_benchmark.json"
"""The file in results/reference that --json of benchmarks/emulated.py has written."""


def emulated_block(folder: Path | None = None) -> str:
    """Return the best scheme on each network and auto with their ratios, and what they were obtained on."""
    path = (folder or reference_dir()) / RECORD
    if not path.exists():
        return none_yet(f"python benchmarks/emulated.py --json results/reference/{RECORD}", "Nothing is", "one")
    record = read(path, loads)
    groups: dict[str, dict[str, None]] = {}
    for run in record["runs"]:
        about = (
            f"{describe(run['hardware'])}, {run['date'][:10]}, commit {run['code']['commit'][:7]}, "
            f"torch {run['versions']['torch']}, {run['rounds']} rounds"
        )
        groups.setdefault(about, {})[run["network"]] = None
    obtained = "; ".join(f"{', '.join(networks)}: {about}" for about, networks in groups.items())
    lines = [line for run in record["runs"] for line in run["summary"]]
    busy = max(run["background_cores"] for run in record["runs"])
    return (
        f"{table(record['columns'], lines)}\n\n{obtained}. One thread a worker; other work on at most {busy:.1f} "
        "cores. Loopback is measured, the other networks are emulated. Ratios are medians with their range."
    )


_STEPS = (
    "model, batch",
    "precision",
    "nominal ms",
    "wall ms",
    "error",
    "in another process",
    "GPU busy ms",
    "wall / busy",
    "kernels",
    "counted",
    "host us a kernel",
)


def steps_block() -> str:
    """Return a table of the steps: nominal, walls, the GPU's busy time, and what a kernel takes the host."""
    return table(_STEPS, map(_step, measured_gpu(SHEET).steps))


def _step(step: MeasuredStep) -> tuple[str, ...]:
    nominal_ms = 1e3 * nominal_s(step)
    return (
        f"{step.model}, {step.batch_size}",
        step.precision,
        f"{nominal_ms:.1f}",
        f"{step.wall_ms:.1f}",
        f"{100 * (nominal_ms / step.wall_ms - 1):+.0f} %",
        f"{step.profiled_wall_ms:.1f}",
        f"{step.busy_ms:.1f}",
        f"{step.wall_ms / step.busy_ms:.2f}",
        f"{step.kernels:,}",
        f"{launched_of(step):,.0f}",
        f"{1e3 * step.host_ms / step.kernels:.0f}" if step.host_bound else "-",
    )


def trainings_block() -> str:
    """Return a table of the trainings on one rank: milliseconds of an iteration by model and scheme."""
    trainings = measured_gpu(SHEET).trainings
    schemes = list(dict.fromkeys(one.scheme for one in trainings))
    rows: dict[str, dict[str, str]] = {}
    for one in trainings:
        took = f"{one.iteration_ms:.1f} ({one.p10_ms:.1f} to {one.p90_ms:.1f})"
        rows.setdefault(f"{one.model}, {one.batch_size}", {})[one.scheme] = took
    return table(("model, batch", *schemes), [(name, *map(took.__getitem__, schemes)) for name, took in rows.items()])


def kernels_block() -> str:
    """Return a table of the kernels' times as multiples of a copy, by version of Triton and number of elements."""
    lines = []
    for one in measured_gpu(SHEET).kernels:
        for operation, points in one.copies.items():
            lines.append((f"{one.triton}, {one.code}", operation, *(f"{copies:.1f}" for _, copies in points)))
    sizes = [f"{numel:,.0f}" for numel, _ in measured_gpu(SHEET).kernels[0].copy_gb_s]
    return table(("Triton, code", "operation", *(f"{size} elements" for size in sizes)), lines)


SHARDED = "sharded_quality"
HEADER = ("task", "sums", "weights", "seeds", "at the end", "dense", "gap by seed", "bytes of a step")


def sharded_quality_block(rows: Sequence[Row]) -> str:
    """Return a line for each task and method: its quality, that of dense training from the same seeds, and bytes."""
    sharded = [row for row in rows if row.case.experiment == SHARDED and not is_dense(row)]
    dense = dense_runs(at_dense_rate(row for row in rows if row.case.experiment == EXPERIMENT))
    groups: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    for row in sharded:
        case = row.case
        if (whole := dense.get(place(row))) is not None:
            key = (case.model, case.compressor or "", case.weights or "torch's own")
            groups.setdefault(key, []).append((row, whole))
    if not groups:
        return none_yet(f"ssfx run experiment={SHARDED}")
    return table(HEADER, [_cells(*key, pairs) for key, pairs in sorted(groups.items())])


ROUNDS_HEADER = ("network", "ranks, batch of each", "method", "every", "seeds", "at the end", "dense", "gap by seed")


def rounds_block(rows: Sequence[Row]) -> str:
    """Return a line for each network and method of local updates, and of exchanges every step on the same data."""
    groups: dict[tuple[str, str, str, int], list[tuple[Row, Row]]] = {}
    for row, twin in with_twins(rows):
        case, work, (scheme, options, every) = row.case, model_work(row.case.model), method_of(row)
        batch = batch_text(family_of(work.tensors), case.batch_size * case.accumulate * work.sample_tokens)
        method = options or (case.compressor if every == 1 else None) or scheme
        key = (f"{case.model}, {case.optimizer}", f"{case.trained_ranks}, {batch}", f"`{method}`", every)
        groups.setdefault(key, []).append((row, twin))
    if not groups:
        return none_yet("ssfx run experiment=local_updates")
    lines = ((*names, str(every), *_compared(pairs)) for (*names, every), pairs in sorted(groups.items()))
    return table(ROUNDS_HEADER, lines)


def _cells(model: str, sums: str, weights: str, pairs: Sequence[tuple[Row, Row]]) -> tuple[str, ...]:
    share = fmean(
        float(one.metrics["sent_bytes"] or 0) / float(whole.metrics["sent_bytes"] or 1) for one, whole in pairs
    )
    return (model, f"`{sums}`", weights, *_compared(pairs), f"{share:.2f}")


def _compared(pairs: Sequence[tuple[Row, Row]]) -> tuple[str, str, str, str]:
    """Return the number of seeds, the mean qualities of runs and of dense ones, and the gaps by seed."""
    pairs = sorted(pairs, key=lambda pair: pair[0].case.seed)
    metric = "perplexity" if "perplexity" in pairs[0][0].metrics else "top1"
    ours, theirs = ([float(row.metrics[metric] or 0) for row in part] for part in zip(*pairs, strict=True))
    gaps = ", ".join(f"{100 * _gap(metric, one, other):+.2f} %" for one, other in zip(ours, theirs, strict=True))
    return str(len(pairs)), _said(metric, ours), _said(metric, theirs), gaps


def _gap(metric: str, value: float, dense: float) -> float:
    """Return the gap of the evaluated loss where there is one, else of the quality, as a share of dense training's."""
    return log(value) / log(dense) - 1 if metric == "perplexity" else value / dense - 1


def _said(metric: str, values: Sequence[float]) -> str:
    return f"perplexity {fmean(values):.2f}" if metric == "perplexity" else f"{100 * fmean(values):.2f} % top-1"
