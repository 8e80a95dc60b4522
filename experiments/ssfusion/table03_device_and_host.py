"""SSFusion Table III: time of DGC on one tensor, on a GPU and on its host, published and measured here."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from ssfx.figures.latency import COMMAND as COMMAND
from ssfx.figures.latency import conditions, points, published
from ssfx.figures.style import CAPTION, COLUMN_IN, caption_text, draw_table, save, style
from ssfx.results.rows import Row

NAME = "ssfusion.table03"
TITLE = "time of DGC on device and host by size"
CLAIMS = ("ssfusion.table3",)
NEEDS = {"experiment": "compressors", "compressor": "dgc", "memory": None, "device": "cpu"}

HEADER = ("tensor (KB)", "GPU\npublished", "CPU\npublished", "CPU\nhere", "GPU\nhere")
NO_GPU = "no GPU measured"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table in milliseconds; rows of other sizes than the paper's are left out."""
    table = lines(rows)
    if not table:
        return []
    import matplotlib.pyplot as plt

    densities = sorted({row.case.density for row in rows if row.case.density})
    shown = [point for point in points(rows) if point.nbytes in published("cpu")]
    text = [
        "Milliseconds. Published: the paper's GPU and CPU, wall time.",
        f"Here: {' '.join(conditions(shown, densities))} Median, in brackets 10th to 90th percentile.",
    ]
    below = caption_text(text, COLUMN_IN)
    with style():
        height_in = 0.45 + 0.16 * len(table) + 0.11 * (1 + below.count("\n"))
        figure, axis = plt.subplots(figsize=(COLUMN_IN, height_in), layout="constrained")
        figure.supxlabel(below, **CAPTION)
        draw_table(axis, HEADER, [_cells(line) for line in table], [0.16, 0.15, 0.15, 0.29, 0.25])
        return save(figure, NAME, table, rows, out)


def finding(rows: list[Row]) -> str:
    """Return our CPU times over the published ones."""
    table = lines(rows)
    if not table:
        return "none of the paper's sizes"
    ratios = ", ".join(f"{line['cpu_ms'] / line['published_cpu_ms']:.2g}x at {line['size_kb']} KB" for line in table)
    return f"CPU time here over the published one: {ratios}; no GPU measured"


def lines(rows: list[Row]) -> list[dict[str, Any]]:
    """Return one line per machine and size of the paper's table."""
    gpu, cpu = published("gpu"), published("cpu")
    found = []
    for (kind, hardware), machine in groupby(points(rows), key=lambda point: (point.kind, point.hardware)):
        for point in machine:
            if point.nbytes not in cpu:
                continue
            found.append(
                {
                    "size_kb": point.nbytes // 1000,
                    "published_gpu_ms": gpu[point.nbytes] * 1e3,
                    "published_cpu_ms": cpu[point.nbytes] * 1e3,
                    "cpu_ms": point.median_s * 1e3,
                    "cpu_p10_ms": point.p10_s * 1e3,
                    "cpu_p90_ms": point.p90_s * 1e3,
                    "gpu_ms": NO_GPU,
                    "n": point.n,
                    "origin": kind,
                    "hardware": hardware,
                }
            )
    return found


def _cells(line: dict[str, Any]) -> list[str]:
    here = f"{line['cpu_ms']:.2g} [{line['cpu_p10_ms']:.2g}, {line['cpu_p90_ms']:.2g}]"
    return [
        f"{line['size_kb']:,}", f"{line['published_gpu_ms']:.2f}", f"{line['published_cpu_ms']:.2f}", here, NO_GPU,
    ]  # fmt: skip
