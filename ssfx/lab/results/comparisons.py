"""From rows to what a figure compares: runs that differ in nothing but the scheme and the repeat.

A Panel has all runs of every scheme with their spread; a Cell has one row of every scheme, simulated in one setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from statistics import median

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import read_json
from ssfx.core.origin import Kind
from ssfx.core.paths import data_dir
from ssfx.core.rows import METRICS, Row
from ssfx.simulator.pricing.degenerate import FAR

DENSE_BASELINE = "ddp"

SCHEME_COLOURS: Mapping[str, str] = read_json(data_dir() / "scheme_colours.json")
"""Of schemes in every figure, in their order there: dense ones, then as the papers build on each other.

Okabe and Ito's colours, distinct with every common form of colour blindness; variants of a scheme share its hue. Others
follow by name, in black.
"""
SCHEME_ORDER = tuple(SCHEME_COLOURS)

_SHARED = (
    "experiment",
    "cluster",
    "model",
    "dataset",
    "batch_size",
    "device",
    "precision",
    "optimizer",
    "lr",
    "momentum",
    "weight_decay",
    "clip_norm",
    "accumulate",
    "threads",
    "steps",
    "warmup_steps",
    "evaluate",
    "time_compute_only",
    "initial_weights",
    "sharding",
    "shards",
    "reduce_dtype",
    "reshard_after_forward",
    "shard_compressor",
    "weights",
    "exempt",
)
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


def sent_mark(rows: Sequence[Row], dense: Sequence[Row]) -> str:
    """Return what runs sent that sent far more than they asked for, "dense", "93 %" or "over 40 %"; else "".

    `auto` asks for no density: bytes say whether all was sent dense. Of simulated runs no element is counted: they
    sent at least half the share of bytes that a rank contributes, as an element takes 8 bytes with its index.
    """
    bytes_sent, all_bytes = (median_of(one, "sent_bytes") for one in (rows, dense))
    as_dense = "dense" if bytes_sent is not None and bytes_sent == all_bytes else ""
    if all(row.case.scheme == "auto" for row in rows):
        return as_dense
    asked = [row.case.density for row in rows]
    if any(one is None or one == 1 for one in asked):
        return ""
    sent = median_of(rows, "achieved_density")
    counted = sent is not None
    if sent == 1 or (as_dense and not counted):
        return "dense"
    if sent is None:
        own, whole = (median_of(one, "contributed_bytes") for one in (rows, dense))
        sent = own / whole / 2 if own and whole else 0.0
    more = sent > FAR * max(one or 0.0 for one in asked)
    return f"{'' if counted else 'over '}{100 * sent:.3g} %" if more else ""


def median_of(rows: Sequence[Row], name: str) -> float | None:
    """Return the median of a metric over the rows that have it, None where none has."""
    values = [value for row in rows if (value := row.metrics.get(name)) is not None]
    return median(values) if values else None


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
    def words(self) -> str:
        """What the rows are, as `Row.kind` says."""
        return next(row.kind for rows in self.bars.values() for row in rows)

    @property
    def how(self) -> str:
        """The same, with the kind of costs that simulated times rest on."""
        return f"{self.words} ({self.case.costs})" if self.case.costs else self.words

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

    def marked(self, label: str) -> str:
        """Return a bar's label, with what it sent that was not asked for, and a star where it is extrapolated."""
        sent = sent_mark(self.bars[label], self.dense)
        return f"{label}{f' (sent {sent})' if sent else ''}{' *' * self.extrapolated(label)}"

    def mark(self, label: str) -> dict[str, str]:
        """Columns of a figure's CSV: what was sent that was not asked for; of simulated bars, what is extrapolated."""
        extrapolated = {"extrapolated": "yes" if self.extrapolated(label) else "no"} if self.case.calibration else {}
        return {"sent": sent_mark(self.bars[label], self.dense), **extrapolated}


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Return the panels of `rows`, one for each world size above 1, ordered by origin, workload and world size."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (
            row.kind,
            row.case.costs,
            row.origin.hardware,
            *(str(getattr(row.case, name)) for name in _SHARED),
        )
        groups.setdefault(key, []).append(row)
    shown = []
    for _, group in sorted(groups.items()):
        single = _newest([row for row in group if row.case.world_size == 1 and row.case.density is None])
        for world_size in sorted({row.case.world_size for row in group} - {1}):
            same = _newest([row for row in group if row.case.world_size == world_size])
            origin = same[0].origin
            shown.append(Panel(origin.kind, origin.hardware, same[0].case, _bars(same), single))
    return shown


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
    for variant in sorted(variants, key=lambda variant: (position(variant[0]), variant)):
        twins = [other for other in variants if other[0] == variant[0]]
        differing = [part for i, part in enumerate(variant) if i and len({twin[i] for twin in twins}) > 1]
        bars[" ".join([variant[0], *filter(None, differing)])] = variants[variant]
    return bars


def position(label: str) -> tuple[int, str]:
    """Return where a row's label stands among others: schemes as in every figure, variants after one another."""
    scheme = label.partition(" ")[0]
    return (SCHEME_ORDER.index(scheme) if scheme in SCHEME_ORDER else len(SCHEME_ORDER), label)


AS_THE_PAPER_RAN = {
    "hipress": "hipress rule=threshold",
    "espresso": "espresso rule=paper",
    "omgs": "omgs rule=paper",
    **{name: f"{name} rule=paper" for name in ("ssfusion_naive", "ssfusion_o", "ssfusion_i", "ssfusion_oi")},
}
"""Labels of rows whose scheme has the paper's own rule: HiPress by size, Espresso's search as printed, OMGS's two
messages, SSFusion by Eq. 2. Rows without options have the scheme at its best, the cheapest plan that its rule gives."""

_SETTING = (
    "experiment",
    "model",
    "dataset",
    "cluster",
    "batch_size",
    "device",
    "optimizer",
    "accumulate",
    "sharding",
    "shards",
    "weights",
    "exempt",
)


@dataclass(frozen=True)
class Cell:
    """One model on one cluster with one sparsifier and density, by one calibration: a row for every scheme.

    `compressor` is "" where every scheme was simulated with one, its own. A scheme that takes no such sparsifier, or no
    density, is beside each of them. Rows are labelled by scheme, and by its options where they are not the default.
    `single` is one device alone.
    """

    compressor: str
    density: float
    rows: Mapping[str, Row]
    single: Row | None

    @cached_property
    def case(self) -> Case:
        """The case of one of the rows: what all of them share."""
        return next(iter(self.rows.values())).case

    @property
    def calibration(self) -> str:
        """The kind of the costs that the rows rest on."""
        return self.case.costs

    @property
    def how(self) -> str:
        """The origin in words."""
        return f"simulated ({self.calibration})"

    @property
    def cluster(self) -> str:
        """The name of the cluster, without options."""
        return self.case.cluster.name

    @property
    def options(self) -> dict[str, str]:
        """The options of the cluster, without its calibration."""
        return self.case.cluster.changes

    def value(self, scheme: str, name: str) -> float:
        """Return a metric of a scheme's row; RunError when it has none."""
        return metric(self.rows[scheme], name)

    def ideal(self, name: str) -> float | None:
        """Return a metric of one device alone, a throughput times the number of devices; None when it was not run."""
        if self.single is None:
            return None
        times = self.case.world_size if name.startswith("throughput") else 1
        return times * metric(self.single, name)

    def fits(self, scheme: str) -> bool:
        """True unless the row says that training needs more memory than a device has."""
        row = self.rows[scheme]
        needed_bytes = row.metrics.get("peak_memory_bytes")
        return needed_bytes is None or needed_bytes <= row.manifest.get("device_memory_bytes", inf)

    def sent(self, scheme: str) -> str:
        """What the row sent where that is far more than it asked for, "dense" or "93 %"; else ""."""
        return sent_mark([self.rows[scheme]], [row for row in [self.rows.get(DENSE_BASELINE)] if row])

    def extrapolated(self, scheme: str) -> bool:
        """True when the row rests on costs beyond the range for which they are known."""
        return bool(self.rows[scheme].manifest.get("extrapolated"))


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Return the cells of all simulated rows, by model, calibration, cluster and size; others are left out.

    Of a case that was simulated by several versions of a calibration, the newest counts.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.case.calibration:
            key = (row.case.costs, *(str(getattr(row.case, name)) for name in _SETTING))
            groups.setdefault(key, []).append(row)
    settings = []
    for _, group in sorted(groups.items()):
        alone = [row for row in group if row.case.world_size == 1 and row.case.density is None]
        single = max(alone, key=lambda row: row.origin.date, default=None)
        for world_size in sorted({row.case.world_size for row in group} - {1}):
            settings += _cells([row for row in group if row.case.world_size == world_size], single)
    return settings


def _cells(rows: list[Row], single: Row | None) -> list[Cell]:
    """Return a cell for every density, and for every sparsifier where schemes were simulated with several of them."""
    rows = _newest(rows)
    taken: dict[str, set[str]] = {}
    for row in rows:
        taken.setdefault(_label(row.case), set()).add(row.case.compressor or "")
    widest = max(taken.values(), key=len)
    densities = sorted({row.case.density for row in rows if row.case.density}) or [1.0]
    settings = []
    for compressor in sorted(widest) if len(widest) > 1 else [""]:
        for density in densities:
            here = {
                _label(row.case): row
                for row in rows
                if row.case.density in (None, density)
                and (not compressor or len(taken[_label(row.case)]) == 1 or row.case.compressor == compressor)
            }
            settings.append(
                Cell(compressor, density, {name: here[name] for name in sorted(here, key=position)}, single)
            )
    return settings


def as_the_paper_ran(cell: Cell) -> Cell:
    """Return the cell with every scheme as the paper ran it; the same cell where no such row was simulated.

    Schemes without such a row stay as they are: they have one rule.
    """
    ran = {scheme: cell.rows[label] for scheme, label in AS_THE_PAPER_RAN.items() if label in cell.rows}
    if not ran:
        return cell
    others = {label: row for label, row in cell.rows.items() if label not in AS_THE_PAPER_RAN.values()}
    return replace(cell, rows={**others, **ran})


def fastest(cell: Cell, schemes: Sequence[str] | None = None) -> str:
    """Return the scheme of the highest throughput among those that fit, out of `schemes` if given."""
    able = [scheme for scheme in cell.rows if cell.fits(scheme) and scheme in (schemes or cell.rows)]
    return max(able, key=lambda scheme: cell.value(scheme, "throughput_samples_per_s"))


def against_dense(cell: Cell, scheme: str) -> float | None:
    """Return the throughput of a scheme over that of dense DDP; None when one of them is not here, or does not fit."""
    if not all(name in cell.rows and cell.fits(name) for name in (scheme, DENSE_BASELINE)):
        return None
    ours, dense = (cell.value(name, "throughput_samples_per_s") for name in (scheme, DENSE_BASELINE))
    return ours / dense


def _label(case: Case) -> str:
    return " ".join([case.scheme, *(f"{key}={value}" for key, value in sorted(case.scheme_options.items()))])
