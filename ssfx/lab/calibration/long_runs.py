"""Steps that a run takes to each quality of dense training, from curves, and which runs may be compared.

Steps are counted to the quality that dense training of the same seed had reached.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import fmean, median

from ssfx.compressors import build
from ssfx.core.rows import Row, points
from ssfx.lab.results.comparisons import Panel
from ssfx.lab.workloads.metrics.tally import QUALITY, better
from ssfx.perf_model.operator_counts import model_work

HORIZONS = (0.25, 0.5, 1.0)
"""Shares of a dense training at whose end the steps of others are compared."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Multiple:
    """Steps to a quality over those of dense training, which reached it within `dense_steps` steps.

    Median and range over runs with a dense run of their seed. Runs that never reached it count with all their steps;
    `unreached` says how many these are, and the multiple is then at least so much.
    """

    dense_steps: float
    median: float
    low: float
    high: float
    runs: int
    unreached: int

    @property
    def at_least(self) -> str:
        """ ">" where half of the runs or more never reached it."""
        return ">" if 2 * self.unreached >= self.runs else ""

    def __str__(self) -> str:
        spread = f" ({self.low:.2f} to {self.high:.2f})" if self.runs > 1 else ""
        return f"{self.at_least}{self.median:.2f}x{spread}"


def multiples(panel: Panel, label: str) -> list[Multiple]:
    """Return the multiples of the runs of a bar at HORIZONS; none without curves of it and of dense runs."""
    dense = {row.case.seed: row for row in panel.dense if row.curve}
    pairs = [(dense[row.case.seed], row) for row in panel.bars[label] if row.curve and row.case.seed in dense]
    rows = (row for pair in pairs for row in pair)
    there = [{name for name, values in row.curve.items() if any(v is not None for v in values)} for row in rows]
    metric = next((name for name in QUALITY if there and all(name in names for names in there)), "")
    return [found for share in HORIZONS if metric and (found := _multiple(pairs, share, metric)) is not None]


def _multiple(pairs: Sequence[tuple[Row, Row]], share: float, metric: str) -> Multiple | None:
    """Return the multiple at the quality that dense runs had after a share of their steps."""
    found, unreached, ends = [], 0, []
    for dense, other in pairs:
        levels = [(step, level) for step, level in best_so_far(dense, metric) if step <= share * dense.case.steps]
        if not levels:
            return None
        step, level = levels[-1]
        there = steps_to(best_so_far(other, metric), level, metric)
        unreached += there is None
        found.append((other.case.steps if there is None else there) / step)
        ends.append(share * dense.case.steps)
    return Multiple(max(ends), median(found), min(found), max(found), len(found), unreached) if found else None


def best_so_far(row: Row, metric: str) -> list[Point]:
    """Return (steps, quality) wherever a run's quality was better than ever before."""
    found: list[Point] = []
    for point in points(row):
        step, value = point["step"], point[metric]
        if (
            step is not None
            and value is not None
            and (not found or (value != found[-1][1] and better(metric, value, found[-1][1])))
        ):
            found.append((step, value))
    return found


def steps_to(path: Sequence[Point], level: float, metric: str) -> float | None:
    """Return the steps to a quality, in a straight line between measurements; None where it was never reached."""
    before: Point | None = None
    for step, value in path:
        if better(metric, value, level):
            if before is None:
                return step
            return before[0] + (step - before[0]) * (level - before[1]) / (value - before[1])
        before = (step, value)
    return None


EXPERIMENT = "long_quality"
EXPERIMENTS = (EXPERIMENT, "horizon")
"""Of long runs: 2,000 steps of many methods, and 10,000 of some."""
FEWEST_STEPS = 1000
"""Steps that a run must have had: a shorter one is still warming up."""
Place = tuple[str, int, int, int]


def long_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that count: of the experiments, whole models, long enough, with a curve.

    A run whose plan sent everything dense, as a planner may choose to, tells nothing of its compressor.
    """
    return [
        row
        for row in once(rows)
        if row.case.experiment in EXPERIMENTS
        and row.case.sharding == "none"
        and row.case.steps >= FEWEST_STEPS
        and row.curve
        and not sent_dense(row)
    ]


def sent_dense(row: Row) -> bool:
    """Return whether a run compressed nothing, though it is not the dense training that others are compared with."""
    compression = None if is_dense(row) else sent_compression([row])
    return compression is not None and abs(compression - 1) < 0.01


def once(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, but for those of virtual ranks of which real ranks ran the same: both end with equal weights."""
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.case.virtual):
        found.setdefault(replace(row.case, virtual="", calibration="").run_id if row.case.virtual else row.run_id, row)
    return list(found.values())


def dense_runs(rows: Iterable[Row]) -> dict[Place, Row]:
    """Return the dense run of every place."""
    return {place(row): row for row in rows if is_dense(row)}


def at_dense_rate(rows: Iterable[Row]) -> list[Row]:
    """Return the rows but those that train at another rate than most dense runs of their task, or clip otherwise."""
    return _like_most(rows, task_of, setting_of, is_dense)


def at_usual_batch(rows: Iterable[Row]) -> list[Row]:
    """Return the rows but those of another batch, or on other ranks, than most runs of their setting."""
    return _like_most(rows, setting_of, lambda row: (batch_of(row), row.case.world_size))


def _like_most(
    rows: Iterable[Row],
    group: Callable[[Row], str],
    of: Callable[[Row], object],
    counts: Callable[[Row], bool] | None = None,
) -> list[Row]:
    rows = list(rows)
    found: dict[str, Counter[object]] = {}
    for row in filter(counts, rows):
        found.setdefault(group(row), Counter())[of(row)] += 1
    usual = {name: counted.most_common(1)[0][0] for name, counted in found.items()}
    return [row for row in rows if of(row) == usual.get(group(row), of(row))]


def is_dense(row: Row) -> bool:
    """Return whether a row is of dense training in 32 bits."""
    return row.case.scheme == "ddp" and row.case.compressor is None


def method(row: Row) -> str:
    """Return what tells the methods of the rows apart, in a few words."""
    case = row.case
    parts = [case.scheme, *([case.compressor] if case.compressor and case.compressor != case.scheme else [])]
    memory = "" if usual_memory(row) else f" memory={case.memory}"
    options = "".join(f" {key}={value}" for key, value in sorted(case.scheme_options.items()))
    options += f" exempt={','.join(case.exempt)}" if case.exempt else ""
    return "/".join(parts) + ("" if case.density is None else f"@{case.density:g}") + memory + options


def usual_memory(row: Row) -> bool:
    """Return whether errors were fed back where they may be, plainly, as a compressor's are unless somebody asks."""
    case = row.case
    if case.compressor is None:
        return case.memory in (None, "none", "residual")
    compressor = build(case.compressor)
    feeds_back = compressor.error_feedback and not compressor.lossless
    return case.memory in (None, "residual" if feeds_back else "none")


@dataclass(frozen=True)
class LogSteps:
    """log(steps over those of dense training) of a run: the median over all qualities that dense training reached.

    `unreached`: the share of them that the run never came to. From a half on, `value` is a lower bound: what the first
    of them took at least.
    """

    value: float
    unreached: float

    @property
    def at_least(self) -> bool:
        """Whether the value is only a lower bound."""
        return self.unreached >= 0.5


def log_steps(dense: Row, other: Row) -> LogSteps | None:
    """Return what the new best qualities of `dense` cost `other`; None of a dense run without any.

    Between two measurements quality is taken to change in a straight line, and its best so far counts. A level that was
    never reached takes at least the rest of the run.
    """
    metric = str(dense.case.target_metric)
    path = best_so_far(other, metric)
    steps = [(step, steps_to(path, level, metric)) for step, level in best_so_far(dense, metric)]
    if not steps:
        return None
    bounds = [log(other.case.steps / step) for step, there in steps if there is None]
    missed = len(bounds) / len(steps)
    if missed >= 0.5:
        return LogSteps(max(bounds), missed)
    return LogSteps(median(inf if there is None else log(there / step) for step, there in steps), missed)


def sent_compression(rows: Sequence[Row]) -> float | None:
    """Return the bytes of the gradient over those that a rank contributed a step, of runs of one model."""
    sent = [float(value) for row in rows if (value := row.metrics.get("contributed_bytes"))]
    return sum(spec.nbytes for spec in model_work(rows[0].case.model).tensors) / fmean(sent) if sent else None


def place(row: Row) -> Place:
    """Return what a run shares with the dense one that it is compared with: setting, ranks, batch and seed."""
    return setting_of(row), row.case.world_size, batch_of(row), row.case.seed


def batch_of(row: Row) -> int:
    """Return the tokens of a step of all ranks together; the samples of what reads no text."""
    case = row.case
    return case.world_size * case.batch_size * case.accumulate * model_work(case.model).sample_tokens


def setting_of(row: Row) -> str:
    """Return the task of a run, the rate at which it learns, whether gradients were clipped, and for how many steps."""
    clipped = ", clipped" if row.case.clip_norm else ""
    return f"{task_of(row)}, rate {row.case.lr:g}{clipped}, {row.case.steps:,} steps"


def task_of(row: Row) -> str:
    """Return the network that a run trains, with the optimizer where it is not the network's customary one."""
    model, optimizer = row.case.model, row.case.optimizer
    return model if optimizer == model_work(model).optimizer else f"{model}, {optimizer}"
