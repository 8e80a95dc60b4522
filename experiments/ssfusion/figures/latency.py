"""Time to sparsify one tensor, in SSFusion's paper and measured here: Fig. 4 and Table III."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import quantiles
from typing import Any, NamedTuple

from experiments.common.claims.verdicts import Outcome, Verdict, compared, span
from experiments.common.evaluation.gpu_times import COMMAND as GPU_COMMAND
from experiments.common.evaluation.gpu_times import COST as GPU_COST
from experiments.common.evaluation.gpu_times import NAME, OTHER_CARD, times_ms
from experiments.common.evaluation.judging import says
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, frame, subplots
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.core.errors import RunError
from ssfx.core.origin import Kind
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric

TIMED_BY = (
    "python benchmarks/compressors.py --models '' --seconds 30 --only dgc,gaussiank,randomk,redsync,sidco "
    "--rows results/reference/compressors_local.jsonl"
)
"""What makes the rows; the sizes include those of the paper's Table III."""

HALF_A_MINUTE = "half a minute on one core"
ITEM_BYTES = 4
SIZES_KB = (10, 100, 1000, 10000)
"""Sizes of the paper's Table III, in thousands of bytes."""


class Point(NamedTuple):
    """Compression of one tensor of `nbytes` (as float32) by one codec: median and middle 80 percent of `n` times."""

    kind: Kind
    hardware: str
    codec: str
    nbytes: int
    median_s: float
    p10_s: float
    p90_s: float
    n: int


def points(rows: Sequence[Row]) -> list[Point]:
    """Return one point a row, by machine, codec and size; RunError for a row that holds no times."""
    return sorted(map(_point, rows))


def published(device: str) -> dict[int, float]:
    """Return the paper's DGC times in seconds by bytes on "gpu" or "cpu": Table III, claims ssfusion.table3.*."""
    return {size_kb * 1000: number(f"ssfusion.table3.{device}.{size_kb}kb") * 1e-3 for size_kb in SIZES_KB}


def _point(row: Row) -> Point:
    times = row.samples.get("compress_s", [])
    if len(times) < 2:
        raise RunError(f"row {row.run_id} ({row.case.label}) has no times to compress; make it again: {TIMED_BY}")
    low_s, *_, high_s = quantiles(times, n=10, method="inclusive")
    nbytes = ITEM_BYTES * int(row.case.model.removeprefix("vector(numel=").removesuffix(")"))
    return Point(
        row.origin.kind,
        row.origin.hardware,
        row.case.compressor or "",
        nbytes,
        metric(row, "compress_s"),
        low_s,
        high_s,
        len(times),
    )


# ---- Fig. 4: five sparsifiers, by the size of the tensor -------------------------------------------------------------

CODECS = {"dgc": "#0072b2", "gaussiank": "#e69f00", "redsync": "#009e73", "sidco": "#cc79a7", "randomk": "#5f5f5f"}
"""The paper's sparsifiers with their colours; rows of others are not drawn."""
NAMES = {"dgc": "DGC", "gaussiank": "Gaussiank", "redsync": "RedSync", "sidco": "SIDCo", "randomk": "Randomk"}
FLAT = 2.0
"""Times that ten times the bytes may take where the time is nearly constant."""


def _fig4(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return one line per sparsifier over sizes, one axis per machine, with the published points of Table III."""
    shown = points(_five(rows))
    if not shown:
        return None
    machines = [list(group) for _, group in groupby(shown, key=lambda point: (point.kind, point.hardware))]
    width_in = 1.5 * COLUMN_IN if len(machines) == 1 else 2 * COLUMN_IN
    canvas, axes = subplots(1, len(machines), figsize=(width_in, 3.4), sharey=True)
    for machine, axis in zip(machines, axes.flat, strict=True):
        _machine(machine, axis)
    origin = "CPU time of one thread, median, 10th to 90th percentile. Open: printed in the paper, wall time."
    frame(canvas, figure.title, origin, ncols=4)
    return canvas, latency_lines(shown), _five(rows)


def _fig4_finding(rows: list[Row]) -> str:
    """Return how much longer ten times the bytes take, for the smallest tensors and for large ones."""
    parts = []
    for codec, group in groupby(points(_five(rows)), key=lambda point: point.codec):
        seconds = {point.nbytes: point.median_s for point in group}
        small, large = (_growth(seconds, nbytes) for nbytes in (1_000, 10_000_000))
        if small and large:
            parts.append(f"{codec} {small:.1f}x and {large:.1f}x")
    if not parts:
        return "sizes from 1 KB to 100 MB are not all there"
    return f"ten times the bytes take, from 1 KB and from 10 MB on: {', '.join(parts)}"


def _fig4_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return whether every sparsifier's time is nearly constant for small tensors, and how many there are."""
    seconds: dict[str, dict[int, float]] = {}
    for point in points(_five(rows)):
        seconds.setdefault(point.codec, {})[point.nbytes] = point.median_s
    growths = {codec: _growth(found, 1_000) for codec, found in seconds.items()}
    known = {codec: growth for codec, growth in growths.items() if growth}
    flat = [codec for codec, growth in known.items() if growth < FLAT]
    outcome: Outcome = "agrees" if len(flat) == len(CODECS) else "disagrees"
    here = ", ".join(f"{codec} {growth:.1f}x" for codec, growth in known.items())
    said = "Time for 10 KB over that for 1 KB, on this CPU; constant is less than twice."
    return [
        *on_other_gpu("ssfusion.fig4"),
        Verdict("ssfusion.fig4.shape", outcome, here, "measured", "", said, "", HALF_A_MINUTE),
        compared("ssfusion.fig4.algos", 5, len(seconds), decimals=0),
    ]


GPU_SIZES_KB = {
    "ssfusion.fig4.dgc.floor": (0.0, 100.0),
    "ssfusion.fig4.dgc.mid": (100.0, 1000.0),
    **{f"ssfusion.table3.gpu.{size}kb": (float(size), float(size)) for size in SIZES_KB},
}
"""Claims of levels on the paper's GPU, and the sizes that they are of."""


def on_other_gpu(artifact: str) -> list[Verdict]:
    """Return what DGC took on a GPU of other make: at the sizes of a claim, or at those on either side of one size."""
    points = {ITEM_BYTES * numel / 1000: encode for numel, (encode, _) in times_ms("dgc").items()}
    found = []
    for claim, (low, high) in GPU_SIZES_KB.items():
        if low == high:
            low, high = max(size for size in points if size <= low), min(size for size in points if size >= high)
        own = [encode for size, encode in points.items() if low <= size <= high]
        if claim.startswith(f"{artifact}."):
            ours = span(min(own), max(own), "ms")
            found.append(Verdict(claim, "not comparable", ours, "measured", "", OTHER_CARD, GPU_COMMAND, GPU_COST))
    return found


def latency_lines(shown: list[Point]) -> list[dict[str, Any]]:
    """Return one line of the figure's table per point, measured and published."""
    found: list[dict[str, Any]] = [
        {
            "codec": point.codec,
            "device": "cpu",
            "size_kb": point.nbytes / 1000,
            "median_ms": point.median_s * 1e3,
            "p10_ms": point.p10_s * 1e3,
            "p90_ms": point.p90_s * 1e3,
            "n": point.n,
            "origin": point.kind,
            "hardware": point.hardware,
        }
        for point in shown
    ]
    for device in ("gpu", "cpu"):
        for nbytes, seconds in published(device).items():
            quoted = {"codec": "dgc", "device": device, "size_kb": nbytes / 1000, "median_ms": seconds * 1e3}
            found.append(
                dict.fromkeys(found[0], "") | quoted | {"origin": "published", "hardware": "SSFusion Table III"}
            )
    return found


def _five(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.case.compressor in CODECS]


def _growth(seconds: dict[int, float], nbytes: int) -> float | None:
    return seconds[10 * nbytes] / seconds[nbytes] if {nbytes, 10 * nbytes} <= set(seconds) else None


def _machine(machine: list[Point], axis: Axes) -> None:
    for codec, colour in CODECS.items():
        mine = [point for point in machine if point.codec == codec]
        if not mine:
            continue
        middle = [point.median_s * 1e3 for point in mine]
        spread = [
            [(point.median_s - point.p10_s) * 1e3 for point in mine],
            [(point.p90_s - point.median_s) * 1e3 for point in mine],
        ]
        sizes = [point.nbytes / 1000 for point in mine]
        axis.errorbar(
            sizes,
            middle,
            spread,
            label=NAMES[codec],
            color=colour,
            linewidth=1,
            elinewidth=0.6,
            marker="o",
            markersize=2.5,
        )
    for device, marker in (("gpu", "s"), ("cpu", "^")):
        quoted = published(device)
        axis.plot(
            [nbytes / 1000 for nbytes in quoted],
            [seconds * 1e3 for seconds in quoted.values()],
            marker=marker,
            markersize=4,
            linestyle="none",
            markerfacecolor="none",
            markeredgecolor=CODECS["dgc"],
            label=f"DGC on {device.upper()}, paper",
        )
    axis.set_title(f"{machine[0].kind} on {machine[0].hardware}", loc="left", fontsize=6.5)
    axis.set(xscale="log", yscale="log")
    ticks = {1: "1 KB", 10: "10 KB", 100: "100 KB", 1e3: "1 MB", 1e4: "10 MB", 1e5: "100 MB"}
    axis.set_xticks(list(ticks), list(ticks.values()))
    axis.set(xlabel="size of the tensor in float32", ylabel="time (ms)")
    axis.grid()


FIG4 = Figure(
    "ssfusion.fig4",
    "Fig. 4: time to sparsify one tensor, by its size",
    _fig4,
    _fig4_verdicts,
    needs={"experiment": "compressors", "memory": None, "device": "cpu"},
    command=TIMED_BY,
    said=_fig4_finding,
    notes=(f"Other hardware than the paper's, so levels do not compare. Of GPUs one {NAME} was timed.",),
)


# ---- Table III: time of DGC on one tensor, on a GPU and on its host --------------------------------------------------


def _table3_finding(rows: list[Row]) -> str:
    """Return our CPU times over the paper's."""
    table = size_lines(rows)
    if not table:
        return "none of the paper's sizes"
    ratios = ", ".join(f"{line['cpu_ms'] / line['paper_cpu_ms']:.2g}x at {line['size']}" for line in table)
    return f"CPU time here over the paper's: {ratios}"


def _table3_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the ratios of the paper's own cells, and our CPU times beside its ones."""
    gpu, cpu = published("gpu"), published("cpu")
    ratios = [cpu[nbytes] / gpu[nbytes] - 1 for nbytes in sorted(gpu)]
    grows = all(a < b for a, b in pairwise(ratios))
    here = "grows with every size" if grows else "does not grow with every size"
    own = "Worked out from the cells that the paper prints."
    found = [
        compared(
            "ssfusion.table3.slowdown",
            (0.753, 3.802),
            (ratios[0], ratios[-1]),
            relative=0.002,
            unit="fraction",
            reason=own,
        ),
        says("ssfusion.table3.widening", grows, here, own),
    ]
    found = [replace(one, command="ssfx figures ssfusion.table3") for one in found]
    for line in size_lines(rows):
        said = f"Other hardware ({line['hardware']}), and the CPU time of one thread instead of wall time."
        claim = f"ssfusion.table3.cpu.{line['size_kb']}kb"
        ours = span(line["cpu_ms"], line["cpu_ms"], "ms")
        found.append(Verdict(claim, "not comparable", ours, "measured", "", said, "", HALF_A_MINUTE))
    return [*found, *on_other_gpu("ssfusion.table3")]


def size_lines(rows: list[Row]) -> list[dict[str, Any]]:
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


TABLE3 = Figure(
    "ssfusion.table3",
    "Table III: time of DGC on one tensor (ms)",
    Tabular(
        {
            "size": "tensor",
            "gpu": "paper\nGPU",
            "cpu": "paper\nCPU",
            "here": "here, CPU\nmedian",
            "spread": "10th to 90th\npercentile",
        },
        lambda _, rows: size_lines(rows),
        lambda lines, _: (
            f"{lines[0]['origin'].capitalize()} on {lines[0]['hardware']}: CPU time of one thread, n = {lines[0]['n']}."
        ),
    ),
    _table3_verdicts,
    needs={"experiment": "compressors", "compressor": "dgc", "memory": None, "device": "cpu"},
    command=TIMED_BY,
    said=_table3_finding,
    notes=(
        "The paper has wall time on its V100S and its Xeon; ours is the CPU time of one thread, so levels do not "
        f"compare. Of GPUs one {NAME} was timed.",
    ),
)
