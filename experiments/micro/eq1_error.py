"""MiCRO Eq. (1): the error is the mean over workers of the norm of what each of them has not sent yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict, counted
from experiments.common.evaluation.judging import complete, says
from experiments.common.evaluation.selection_example import DENSITY, WORKERS, run
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row

NAME = "micro.eq1"
TITLE = "Mean norm of the workers' errors"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the error of MiCRO on made-up gradients, step by step, beside its threshold."""
    import matplotlib.pyplot as plt

    history = run("micro").history
    table = [
        {"step": step, "error_norm": norm, "threshold": threshold, "density_ratio": ratio}
        for step, (ratio, threshold, norm) in enumerate(history)
    ]
    with style():
        figure, axis = plt.subplots(figsize=(1.4 * COLUMN_IN, 2.2), layout="constrained")
        axis.plot([line["step"] for line in table], [line["error_norm"] for line in table], color="#c9a0dc")
        axis.set_title(f"{TITLE}: {WORKERS} workers, density {DENSITY:g}", loc="left", fontweight="bold")
        axis.set_xlabel("step")
        axis.set_ylabel("error")
        axis.grid()
        figure.supxlabel("Computed by ssfx on made-up gradients; no training run.", x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return the verdict on the definition."""
    last = run("micro").history[-1][2]
    why = "a definition, used here as it stands; the paper swaps the indices of worker and step (MI-03)"
    found = says("micro.eq1.form", "agrees", f"{last:.3g} in the last step drawn", why, source="restated")
    return complete(NAME, [found], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return what the error comes to."""
    return f"{judge(rows)[0].ours} ({counted(judge(rows))})"
