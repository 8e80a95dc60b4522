"""From rows to what a figure compares: groups of runs that differ in nothing but the scheme and the repeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.origin import Kind
from ssfx.core.rows import METRICS, Row

DENSE_BASELINE = "ddp"

SCHEME_ORDER = (
    "ssgd", "wfbp", "ddp", "ddp_fp16", "hierarchical", "omnireduce", "parallax", "topk", "hard_threshold", "per_tensor",
    "fused_all", "equal_count", "omgs_fixed", "mergecomp", "omgs", "cupcake", "hipress", "espresso", "ssfusion_naive",
    "ssfusion", "ssfusion_o", "ssfusion_i", "ssfusion_oi", "oktopk", "spardl", "micro", "gtopk", "sparcml",
    "s2reducer", "cltk", "signsgd", "powersgd", "acpsgd",
)  # fmt: skip
"""Order of schemes in every figure: dense ones, then as the papers build on each other; others follow by name."""

_SHARED = (
    "experiment", "cluster", "model", "dataset", "batch_size", "device", "precision", "optimizer", "lr", "momentum",
    "weight_decay", "clip_norm", "accumulate", "threads", "steps", "warmup_steps", "evaluate", "time_compute_only",
    "initial_weights", "sharding", "shards", "reduce_dtype", "reshard_after_forward", "shard_compressor", "weights",
    "exempt",
)  # fmt: skip
"""Case fields in which all runs of one panel agree."""


def metric(row: Row, name: str) -> float:
    """Return a metric of `row`; RunError when the row has no value for it, never a substitute."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}")
    value = row.metrics.get(name)
    if value is None:
        raise RunError(f"row {row.run_id} ({row.case.label}) has no value for {name}; remove it to run the case again")
    return float(value)


@dataclass(frozen=True)
class Spread:
    """Several runs of one case: the median, the full range and the number of runs."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, rows: Iterable[Row], name: str) -> Spread:
        """Return the spread of a metric over at least one row."""
        values = [metric(row, name) for row in rows]
        return cls(median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Panel:
    """Runs that may be compared: one workload on one cluster and world size, of one origin.

    Simulated runs are of one calibration: the newest of its kind. `bars` maps a scheme's label to its runs, in
    SCHEME_ORDER. `single` holds the dense runs of one worker alone.
    """

    kind: Kind
    hardware: str
    case: Case
    bars: dict[str, list[Row]]
    single: list[Row]

    @property
    def world_size(self) -> int:
        """Number of workers of every bar."""
        return self.case.world_size

    @property
    def workload(self) -> str:
        """Model and data set."""
        return f"{self.case.model} / {self.case.dataset}"

    @property
    def name(self) -> str:
        """The model, and where its runs were simulated."""
        return f"{self.case.model} on {self.case.cluster}, {self.how}" if self.case.calibration else self.case.model

    @property
    def how(self) -> str:
        """The origin, with the kind of costs that simulated runs rest on."""
        costs = self.case.calibration.partition(":")[0]
        return f"{self.kind} ({costs})" if costs else self.kind

    def extrapolated(self, label: str) -> bool:
        """True when a bar rests on costs beyond the range that they are known for."""
        return any(row.manifest.get("extrapolated") for row in self.bars[label])

    @property
    def dense(self) -> list[Row]:
        """The runs of the dense baseline."""
        return self.bars.get(DENSE_BASELINE, [])

    @property
    def runs(self) -> list[int]:
        """Number of runs behind each bar."""
        return [len(rows) for rows in self.bars.values()]

    @property
    def background_cores(self) -> float:
        """Most cores that programs other than the workers kept busy during one of the runs, as far as recorded."""
        rows = [row for bar in self.bars.values() for row in bar]
        return max(row.manifest.get("background_cores") or 0.0 for row in rows)

    @property
    def conditions(self) -> str:
        """What all bars have in common beside the workload: network, workers, device, compression."""
        case = self.case
        here = case.cluster.name == "local" and not case.calibration
        network = "workers on one machine" if here else f"cluster {case.cluster}"
        parts = [network, f"{case.device} {case.precision}"]
        if case.device == "cpu":
            parts.append(f"{case.threads} thread{'s' if case.threads > 1 else ''} per worker")
        cases = [row.case for rows in self.bars.values() for row in rows]
        sparse = {(case.compressor, case.density) for case in cases if case.compressor and case.density}
        if len(sparse) == 1:
            ((compressor, density),) = sparse
            parts.append(f"sparse schemes: {compressor}, density {density:g}")
        return ", ".join(parts)

    def columns(self) -> dict[str, str | int]:
        """The first columns of a figure's CSV, saying which panel a line belongs to."""
        return {
            "workload": self.workload,
            "cluster": str(self.case.cluster),
            "world_size": self.world_size,
            "batch_size": self.case.batch_size,
            "origin": self.how,
            "hardware": self.hardware,
        }

    def mark(self, label: str) -> dict[str, str]:
        """The column of a figure's CSV that says whether a simulated bar is extrapolated; none for real runs."""
        return {"extrapolated": "yes" if self.extrapolated(label) else "no"} if self.case.calibration else {}


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Return the panels of `rows`, one for each world size above 1, ordered by origin, workload and world size."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        costs = row.case.calibration.partition(":")[0]
        key = (row.origin.kind, costs, row.origin.hardware, *(str(getattr(row.case, name)) for name in _SHARED))
        groups.setdefault(key, []).append(row)
    found = []
    for _, group in sorted(groups.items()):
        single = _newest([row for row in group if row.case.world_size == 1 and row.case.density is None])
        for world_size in sorted({row.case.world_size for row in group} - {1}):
            same = _newest([row for row in group if row.case.world_size == world_size])
            origin = same[0].origin
            found.append(Panel(origin.kind, origin.hardware, same[0].case, _bars(same), single))
    return found


def _newest(rows: list[Row]) -> list[Row]:
    """Return the rows of the calibration that was used last: earlier ones are superseded. Real runs have none."""
    last = max(rows, key=lambda row: row.origin.date, default=None)
    return [row for row in rows if last and row.case.calibration == last.case.calibration]


def _bars(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the runs of each variant; a label says only what tells it from other variants of the same scheme."""
    variants: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        case = row.case
        density = "" if case.density is None else f"{case.density:g}"
        options = " ".join(f"{key}={value}" for key, value in sorted(case.scheme_options.items()))
        variants.setdefault((case.scheme, case.compressor or "", density, case.memory or "", options), []).append(row)
    bars = {}
    for variant in sorted(variants, key=lambda v: (_position(v[0]), v)):
        twins = [other for other in variants if other[0] == variant[0]]
        differing = [part for i, part in enumerate(variant) if i and len({twin[i] for twin in twins}) > 1]
        bars[" ".join([variant[0], *filter(None, differing)])] = variants[variant]
    return bars


def _position(scheme: str) -> tuple[int, str]:
    return (SCHEME_ORDER.index(scheme) if scheme in SCHEME_ORDER else len(SCHEME_ORDER), scheme)
