"""ACP-SGD Algorithm 2: what error feedback adds to alternating factors, on a small matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.core.rows import Row

NAME = "acpsgd.alg2"
TITLE = "ACP-SGD with and without error feedback"
COMMAND = f"ssfx figures {NAME}"

SHAPE, RANK, WORKERS, STEPS = (24, 16), 2, 4, 40


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write how far the mean of what was applied is from the mean gradient, over steps."""
    import matplotlib.pyplot as plt

    curves = {"with error feedback": distances(True), "without": distances(False)}
    table = [
        {"method": name, "step": i + 1, "distance": value}
        for name, own in curves.items()
        for i, value in enumerate(own)
    ]
    with style():
        figure, axis = plt.subplots(figsize=(1.2 * COLUMN_IN, 2.3), layout="constrained")
        for (name, own), colour in zip(curves.items(), ("#0072b2", "#d55e00"), strict=True):
            axis.plot(range(1, STEPS + 1), own, color=colour, label=name)
        axis.set_xlabel("step")
        axis.set_ylabel("distance from the gradient")
        axis.set_ylim(bottom=0)
        axis.set_title(
            f"rank {RANK} of a {SHAPE[0]} x {SHAPE[1]} matrix, {WORKERS} workers", loc="left", fontweight="bold"
        )
        axis.legend()
        axis.grid()
        origin = "Computed by ssfx on made-up gradients that stay the same; no training run."
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def distances(feedback: bool) -> list[float]:
    """Return |mean of all updates so far - mean gradient| / |mean gradient| after every step."""
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((WORKERS, *SHAPE)) + rng.standard_normal(SHAPE)
    target = gradients.mean(axis=0)
    errors, applied, found = np.zeros_like(gradients), np.zeros(SHAPE), []
    p, q = rng.standard_normal((SHAPE[0], RANK)), rng.standard_normal((SHAPE[1], RANK))
    for step in range(STEPS):
        inputs = gradients + errors if feedback else gradients
        if step % 2 == 0:
            q = np.linalg.qr(q)[0]
            own = [one @ q for one in inputs]
            p = np.mean(own, axis=0)
            sent = [one @ q.T for one in own]
        else:
            p = np.linalg.qr(p)[0]
            own = [one.T @ p for one in inputs]
            q = np.mean(own, axis=0)
            sent = [p @ one.T for one in own]
        errors = inputs - np.array(sent)
        applied += p @ q.T
        found.append(float(np.linalg.norm(applied / (step + 1) - target) / np.linalg.norm(target)))
    return found


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this algorithm."""
    return complete(NAME, [], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return how far both are from the gradient in the end."""
    return f"{distances(True)[-1]:.2f} with error feedback, {distances(False)[-1]:.2f} without"
