"""MiCRO Fig. 3: parts that rotate over the workers, and a threshold that follows the count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.selection_example import run
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.collectives.micro import partition_of
from ssfx.core.rows import Row

NAME = "micro.fig3"
TITLE = "Exclusive parts and the steered threshold"
COMMAND = f"ssfx figures {NAME}"

WORKERS, STEPS = 4, 8
PARTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write which part each worker selects from, step by step, and how many elements are selected in the end."""
    import matplotlib.pyplot as plt

    table = [
        {"step": step, "worker": worker, "part": partition_of(worker, step, WORKERS)}
        for step in range(STEPS)
        for worker in range(WORKERS)
    ]
    history = run("micro").history
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.1), layout="constrained")
        for line in table:
            left.barh(line["worker"], 0.94, 0.86, left=line["step"], color=PARTS[line["part"]])
            left.text(line["step"] + 0.47, line["worker"], line["part"], ha="center", va="center", color="white")
        left.set_yticks(range(WORKERS), [f"worker {worker}" for worker in range(WORKERS)])
        left.set_ylim(WORKERS - 0.5, -0.5)
        left.set_xlabel("step")
        left.set_title("part of the vector that a worker selects from", loc="left", fontweight="bold")
        right.plot([ratio for ratio, _, _ in history], color="#5b2a86", linewidth=0.9)
        right.axhline(1, color="black", linewidth=0.7, linestyle=(0, (4, 2)))
        right.set_yscale("log")
        right.set_xlabel("step")
        right.set_ylabel("selected over wanted")
        right.set_title("count that the threshold follows", loc="left", fontweight="bold")
        right.grid()
        origin = "Computed by ssfx: the rules of its collective on made-up gradients of 16 workers; no training run."
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this figure."""
    return complete(NAME, [], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return how near the count comes to what is wanted."""
    return f"{run('micro').ratio:.2f} of the wanted elements in the last quarter of the steps"
