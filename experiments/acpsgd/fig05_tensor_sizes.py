"""ACP-SGD Fig. 5: how large tensors are before and after low-rank compression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.common.claims.verdicts import Verdict, counted
from experiments.common.evaluation.judging import complete, held, number
from experiments.common.evaluation.low_rank import MODELS, of, share_below
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from experiments.common.figures.tables import COMPUTED
from ssfx.core.rows import Row

NAME = "acpsgd.fig5"
TITLE = "Sizes of tensors before and after compression"
COMMAND = f"ssfx figures {NAME}"

PANELS = {"ResNet-50": ("acpsgd.iv.cdf.resnet50", 1e4), "BERT-Base": ("acpsgd.iv.cdf.bertbase", 1e5)}
"""Panel -> its claim, and the size below which the text calls a tensor small."""
SERIES = {"whole": ("gradient M", "#5f5f5f"), "p": ("factor P", "#0072b2"), "q": ("factor Q", "#d55e00")}
LAST_DIGIT = 5.0
"""The text says 30 %: half of its last digit that counts."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the cumulative distributions, with the rise that the text states as a bracket."""
    import matplotlib.pyplot as plt

    table: list[dict[str, Any]] = []
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.3), sharey=True, layout="constrained")
        for axis, (name, (claim, limit)) in zip(axes, PANELS.items(), strict=True):
            for series, (label, colour) in SERIES.items():
                sizes = sorted(getattr(of(name), series))
                shares = [100 * (i + 1) / len(sizes) for i in range(len(sizes))]
                axis.step(sizes, shares, where="post", color=colour, label=label)
                table.append({"model": name, "series": label, "limit": limit, "percent": share_below(sizes, limit)})
            before = share_below(of(name).whole, limit)
            axis.axvline(limit, color="#999999", linewidth=0.6, linestyle=":")
            axis.errorbar(
                limit, before, yerr=[[0], [number(claim)]], fmt="o", fillstyle="none", color="black", capsize=3,
                markersize=4, label="paper: rise at the dotted line",
            )  # fmt: skip
            axis.set_xscale("log")
            axis.set_title(f"{name} (rank {MODELS[name][1]})", loc="left", fontweight="bold")
            axis.set_xlabel("parameters in a tensor")
            axis.grid()
        axes[0].set_ylabel("tensors with fewer (%)")
        axes[1].legend(loc="lower right")
        figure.supxlabel(COMPUTED, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on the rise of the share of small tensors, in points, for P and Q."""
    found = []
    for name, (claim, limit) in PANELS.items():
        before, p, q = (share_below(sizes, limit) for sizes in (of(name).whole, of(name).p, of(name).q))
        rises = sorted((p - before, q - before))
        found.append(held(claim, (rises[0], rises[1]), tolerance=LAST_DIGIT / number(claim)))
    return complete(NAME, found, COMMAND)


def finding(rows: list[Row]) -> str:
    """Return by how many points the share of small tensors rises."""
    return "small tensors: " + "; ".join(f"{one.ours} more" for one in judge(rows)) + f" ({counted(judge(rows))})"
