"""MergeComp Fig. 3: time to encode by tensor size, and how large the tensors of two networks are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete, held, number
from experiments.common.evaluation.mergecomp_panels import COLOURS, LABELS
from experiments.common.evaluation.step_plots import PAPER
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "mergecomp.fig3"
TITLE = "Time to compress one tensor, and sizes of tensors"
NEEDS = {"experiment": "compressors", "dataset": "laplace"}
COMMAND = "python benchmarks/compressors.py"

NETWORKS = {"ResNet50": "resnet50", "ResNet101": "resnet101"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write CPU times by size with the paper's lower bound, and the sizes of tensors."""
    import matplotlib.pyplot as plt

    table: list[dict[str, object]] = []
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.6), layout="constrained")
        for name, points in times(rows).items():
            left.plot(*zip(*points, strict=True), marker="o", markersize=2.5, color=COLOURS[name], label=LABELS[name])
            table += [{"panel": "encode", "method": name, "elements": x, "ms": y} for x, y in points]
        bound = number("mergecomp.fig3.enc")
        ends = [number("mergecomp.fig3.lo"), number("mergecomp.fig3.hi")]
        left.plot(ends, [bound, bound], **PAPER, label="paper: most take more (V100)")
        left.set_xscale("log", base=2)
        left.set_yscale("log")
        left.set_xlabel("elements")
        left.set_ylabel("encode (ms)")
        left.set_title("one CPU thread", loc="left", fontweight="bold")
        for (name, model), colour in zip(NETWORKS.items(), ("#0072b2", "#d55e00"), strict=True):
            sizes = sorted(spec.numel for spec in model_work(model).tensors)
            shares = [100 * (i + 1) / len(sizes) for i in range(len(sizes))]
            right.step(sizes, shares, where="post", color=colour, label=f"{name}, {len(sizes)} tensors")
            table.append({"panel": "sizes", "method": name, "tensors": len(sizes)})
        right.set_xscale("log", base=2)
        right.set_xlabel("elements in a tensor")
        right.set_ylabel("tensors with fewer (%)")
        right.set_title("(c) tensor sizes", loc="left", fontweight="bold")
        for axis in (left, right):
            axis.grid()
            axis.legend()
        hardware = "; ".join(sorted({row.origin.hardware for row in rows}))
        origin = f"Left: measured on {hardware}, other hardware than the paper's. Right: computed from shapes."
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the numbers of tensors; times of a CPU are not held against those of a GPU."""
    cpu = "ours are CPU times, the paper's are of a GPU"
    largest = [points[-1][1] for points in times(rows).values()]
    shown = f"{min(largest):.2g} to {max(largest):.2g} ms for the largest tensors" if largest else ""
    found = [
        absent("mergecomp.fig3.enc", cpu, "not comparable" if shown else "not attempted", shown),
        absent("mergecomp.fig3.dec", "decoding alone is not measured here"),
        absent("mergecomp.fig3.flat", "flat on GPUs, where launching kernels takes longest; a CPU has no such cost"),
        absent("mergecomp.fig3.lo", "a setting of the measurement; ours start at 250 elements"),
        absent("mergecomp.fig3.hi", "a setting of the measurement; ours end at 25 million elements"),
        held("mergecomp.fig3.t50", len(model_work("resnet50").tensors), tolerance=0.0),
        held("mergecomp.fig3.t101", len(model_work("resnet101").tensors), tolerance=0.0),
    ]
    return complete(NAME, found, COMMAND)


def times(rows: list[Row]) -> dict[str, list[tuple[int, float]]]:
    """Return compressor -> (elements, ms) by size, for the compressors of the paper that were measured."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        name = (row.case.compressor or "").partition("(")[0]
        seconds = row.metrics.get("compress_s")
        if name in LABELS and seconds is not None:
            numel = int(row.case.model.partition("numel=")[2].rstrip(")"))
            found.setdefault(name, []).append((numel, 1e3 * seconds))
    return {name: sorted(points) for name, points in sorted(found.items())}
