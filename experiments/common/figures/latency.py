"""Time to compress one tensor: points measured by benchmarks/compressors.py, and those that the SSFusion paper has."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

from experiments.common.claims.ledger import ledgers
from ssfx.core.errors import RunError
from ssfx.core.origin import Kind
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric

COMMAND = (
    "python benchmarks/compressors.py --models '' --seconds 30 --only dgc,gaussiank,randomk,redsync,sidco "
    "--rows results/reference/compressors_local.jsonl"
)
"""What makes the rows; the sizes include those of the paper's Table III."""

ITEM_BYTES = 4
SIZES_KB = (10, 100, 1000, 10000)
"""Sizes of the paper's Table III, in thousands of bytes."""


@dataclass(frozen=True)
class Point:
    """Compression of one tensor of `nbytes` (as float32) by one codec: median and middle 80 percent of `n` times."""

    codec: str
    nbytes: int
    median_s: float
    p10_s: float
    p90_s: float
    n: int
    kind: Kind
    hardware: str
    background_cores: float


def points(rows: Sequence[Row]) -> list[Point]:
    """Return one point a row, by machine, codec and size; RunError for a row that holds no times."""
    return sorted(map(_point, rows), key=lambda point: (point.kind, point.hardware, point.codec, point.nbytes))


def published(device: str) -> dict[int, float]:
    """Return the paper's DGC times in seconds by bytes on "gpu" or "cpu": Table III, claims ssfusion.table3.*."""
    values = {claim.id: claim.bounds for ledger in ledgers() for claim in ledger.claims}
    found = {}
    for size_kb in SIZES_KB:
        bounds = values[f"ssfusion.table3.{device}.{size_kb}kb"]
        assert bounds is not None
        found[size_kb * 1000] = bounds[0] * 1e-3
    return found


def conditions(shown: Sequence[Point], densities: Sequence[float]) -> list[str]:
    """Return caption lines that say how the points were obtained."""
    lines = sorted({f"{point.kind} on {point.hardware}; CPU time of one thread, no memory." for point in shown})
    disturbed = max(point.background_cores for point in shown)
    if disturbed >= 0.1:
        lines.append(f"Other programs kept up to {disturbed:.1f} cores busy during it.")
    fewest, most = min(point.n for point in shown), max(point.n for point in shown)
    spread = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    asked = ", ".join(f"{density:g}" for density in densities)
    lines.append(f"Density {asked}, Laplace data; n = {spread} times a point, in one process.")
    return lines


def _point(row: Row) -> Point:
    times = row.samples.get("compress_s", [])
    if len(times) < 2:
        raise RunError(f"row {row.run_id} ({row.case.label}) has no times to compress; make it again: {COMMAND}")
    cut = quantiles(times, n=10, method="inclusive")
    return Point(
        codec=row.case.compressor or "",
        nbytes=ITEM_BYTES * int(row.case.model.removeprefix("vector(numel=").removesuffix(")")),
        median_s=metric(row, "compress_s"),
        p10_s=cut[0],
        p90_s=cut[-1],
        n=len(times),
        kind=row.origin.kind,
        hardware=row.origin.hardware,
        background_cores=row.manifest.get("background_cores") or 0.0,
    )
