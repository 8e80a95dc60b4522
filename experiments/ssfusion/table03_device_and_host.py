"""SSFusion Table III: time of DGC on one tensor, on a GPU and on its host, in the paper and measured here."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from experiments.common.claims.verdicts import Verdict, compared, span
from experiments.common.figures.latency import COMMAND as COMMAND
from experiments.common.figures.latency import points, published
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row

NAME = "ssfusion.table3"
TITLE = "Table III: time of DGC on one tensor (ms)"
NEEDS = {"experiment": "compressors", "compressor": "dgc", "memory": None, "device": "cpu"}
COST = "half a minute on one core"
NOTES = (
    "The paper has wall time on its V100S and its Xeon; ours is the CPU time of one thread, so levels do not compare. "
    "No GPU was measured here.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table in milliseconds; rows of other sizes than the paper's are left out."""
    table = lines(rows)
    if not table:
        return []
    columns = {
        "size": "tensor",
        "gpu": "paper\nGPU",
        "cpu": "paper\nCPU",
        "here": "here, CPU\nmedian",
        "spread": "10th to 90th\npercentile",
    }
    origin = (
        f"{table[0]['origin'].capitalize()} on {table[0]['hardware']}: CPU time of one thread, n = {table[0]['n']}."
    )
    return draw_table(NAME, TITLE, columns, table, out, origin=origin, used=rows)


def finding(rows: list[Row]) -> str:
    """Return our CPU times over the paper's."""
    table = lines(rows)
    if not table:
        return "none of the paper's sizes"
    ratios = ", ".join(f"{line['cpu_ms'] / line['paper_cpu_ms']:.2g}x at {line['size']}" for line in table)
    return f"CPU time here over the paper's: {ratios}; no GPU measured"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the ratios of the paper's own cells, and our CPU times beside its ones."""
    gpu, cpu = published("gpu"), published("cpu")
    ratios = [cpu[nbytes] / gpu[nbytes] - 1 for nbytes in sorted(gpu)]
    grows = all(a < b for a, b in pairwise(ratios))
    here = "grows with every size" if grows else "does not grow with every size"
    own = "Worked out from the cells that the paper prints."
    found = [
        compared(f"{NAME}.slowdown", (0.753, 3.802), (ratios[0], ratios[-1]), relative=0.002, unit="fraction",
                 reason=own, command=f"ssfx figures {NAME}"),
        Verdict(f"{NAME}.widening", "agrees" if grows else "disagrees", here, "computed", reason=own,
                command=f"ssfx figures {NAME}"),
    ]  # fmt: skip
    for line in lines(rows):
        said = f"Other hardware ({line['hardware']}), and the CPU time of one thread instead of wall time."
        claim = f"{NAME}.cpu.{line['size_kb']}kb"
        ours = span(line["cpu_ms"], line["cpu_ms"], "ms")
        found.append(Verdict(claim, "not comparable", ours, "measured", "", said, COMMAND, COST))
    return found


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
                    "size": f"{point.nbytes // 1000:,} KB",
                    "size_kb": point.nbytes // 1000,
                    "gpu": f"{gpu[point.nbytes] * 1e3:.2f}",
                    "cpu": f"{cpu[point.nbytes] * 1e3:.2f}",
                    "here": f"{point.median_s * 1e3:.2g}",
                    "spread": f"{point.p10_s * 1e3:.2g} to {point.p90_s * 1e3:.2g}",
                    "paper_cpu_ms": cpu[point.nbytes] * 1e3,
                    "cpu_ms": point.median_s * 1e3,
                    "n": point.n,
                    "origin": kind,
                    "hardware": hardware,
                }
            )
    return found
