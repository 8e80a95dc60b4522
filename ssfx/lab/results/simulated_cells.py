"""From simulated rows to cells: one setting of an experiment, with a row for every scheme simulated there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from ssfx.core.case import Case
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import DENSE_BASELINE, SCHEME_ORDER, metric

AS_THE_PAPER_RAN = {
    "hipress": "hipress rule=threshold",
    "espresso": "espresso rule=paper",
    "omgs": "omgs rule=paper",
    **{name: f"{name} rule=paper" for name in ("ssfusion_naive", "ssfusion_o", "ssfusion_i", "ssfusion_oi")},
}
"""Labels of rows whose scheme has the paper's own rule: HiPress by size, Espresso's search as printed, OMGS's two
messages, SSFusion by Eq. 2. Rows without options have the scheme at its best, the cheapest plan that its rule gives."""

_SHARED = (
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
        return self.case.calibration.partition(":")[0]

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
        return {key: str(value) for key, value in self.case.cluster.options.items() if key != "calibration"}

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
            key = (row.case.calibration.partition(":")[0], *(str(getattr(row.case, name)) for name in _SHARED))
            groups.setdefault(key, []).append(row)
    found = []
    for _, group in sorted(groups.items()):
        alone = [row for row in group if row.case.world_size == 1 and row.case.density is None]
        single = max(alone, key=lambda row: row.origin.date, default=None)
        for world_size in sorted({row.case.world_size for row in group} - {1}):
            found += _cells([row for row in group if row.case.world_size == world_size], single)
    return found


def _cells(rows: list[Row], single: Row | None) -> list[Cell]:
    """Return a cell for every density, and for every sparsifier where schemes were simulated with several of them."""
    newest = max(rows, key=lambda row: row.origin.date).case.calibration
    rows = [row for row in rows if row.case.calibration == newest]
    taken: dict[str, set[str]] = {}
    for row in rows:
        taken.setdefault(_label(row.case), set()).add(row.case.compressor or "")
    widest = max(taken.values(), key=len)
    densities = sorted({row.case.density for row in rows if row.case.density}) or [1.0]
    found = []
    for compressor in sorted(widest) if len(widest) > 1 else [""]:
        for density in densities:
            here = {
                _label(row.case): row
                for row in rows
                if row.case.density in (None, density)
                and (not compressor or len(taken[_label(row.case)]) == 1 or row.case.compressor == compressor)
            }
            found.append(Cell(compressor, density, {name: here[name] for name in sorted(here, key=position)}, single))
    return found


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
    if not all(one in cell.rows and cell.fits(one) for one in (scheme, DENSE_BASELINE)):
        return None
    ours, dense = (cell.value(one, "throughput_samples_per_s") for one in (scheme, DENSE_BASELINE))
    return ours / dense


def position(label: str) -> tuple[int, str]:
    """Return where a row's label stands among others: schemes as in every figure, variants after one another."""
    scheme = label.partition(" ")[0]
    return (SCHEME_ORDER.index(scheme) if scheme in SCHEME_ORDER else len(SCHEME_ORDER), label)


def _label(case: Case) -> str:
    return " ".join([case.scheme, *(f"{key}={value}" for key, value in sorted(case.scheme_options.items()))])
