"""All-reduce and all-gather over message size on the S2 Reducer paper's cluster, by nominal times (Figs. 5 and 6)."""

from __future__ import annotations

from pathlib import Path

from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.judging import number
from experiments.common.evaluation.step_plots import PAPER
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row
from ssfx.perf_model.build_timing_model import system_on

SIZES_MB = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
MEGABYTE = 1e6
CLUSTER = "s2reducer_10gbe"
COLLECTIVES = {"all_reduce": ("all-reduce", "#0072b2"), "all_gather": ("all-gather", "#d55e00")}


def draw_collectives(figure_name: str, rows: list[Row], out: Path) -> list[Path]:
    """Write the time of both collectives over message size, and the ratio that the text states as an open mark."""
    import matplotlib.pyplot as plt

    table: list[dict[str, object]] = []
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.3), layout="constrained")
        for name, (label, colour) in COLLECTIVES.items():
            points = [1e3 * seconds(name, mb) for mb in SIZES_MB]
            left.plot(SIZES_MB, points, color=colour, marker="o", markersize=2.5, label=label)
            table += [{"collective": label, "megabytes": mb, "ms": ms} for mb, ms in zip(SIZES_MB, points, strict=True)]
        left.set_yscale("log")
        left.set_ylabel("time (ms)")
        left.legend()
        right.plot(SIZES_MB, [ratio(mb) for mb in SIZES_MB], color="#333333", marker="o", markersize=2.5)
        at = number("s2reducer.appB1.size")
        right.plot([at], [number("s2reducer.appB1.ratio")], **PAPER, label="paper: more from here on")
        right.set_ylim(bottom=0)
        right.set_ylabel("all-gather over all-reduce (x)")
        right.legend(loc="lower right")
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.set_xticks(SIZES_MB[::2], [f"{mb:g}" for mb in SIZES_MB[::2]])
            axis.minorticks_off()
            axis.set_xlabel("message of one rank (MB)")
            axis.grid()
        where = cluster(CLUSTER)
        origin = (
            f"Simulated with nominal times: {where.nodes} nodes of {where.devices_per_node}, 10 Gb/s Ethernet; the "
            "paper's figure is of InfiniBand, on which the ratio does not depend."
        )
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, figure_name, table, rows, out)


def seconds(collective: str, megabytes: float) -> float:
    """Return the time of one collective when every rank has so many bytes, by nominal times."""
    curve = system_on(cluster(CLUSTER)).exchange[collective]
    return float(curve(megabytes * MEGABYTE))


def ratio(megabytes: float) -> float:
    """Return how many times as long an all-gather takes as an all-reduce."""
    return seconds("all_gather", megabytes) / seconds("all_reduce", megabytes)
