"""MiCRO Fig. 5: density over training of four sparsifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.configured import workload
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.judging import complete, held, number, says
from experiments.common.evaluation.micro_runs import COLOURS, GROUP, METHODS, late, method, runs
from experiments.common.evaluation.quality_curves import SCALE, curve, draw_curves, grouped
from ssfx.core.rows import Row

NAME = "micro.fig5"
TITLE = "Density over steps of four sparsifiers"
NEEDS = {"experiment": ("micro_quality", LONG).__contains__, "calibration": ""}
COMMAND = "ssfx run experiment=micro_quality"

BAND = 0.1
"""Relative difference within which a density counts as the one that was set."""
TRAINING_IMAGES, WORKERS = 50_000, 16
"""Of CIFAR-10 and CIFAR-100, and of the paper."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the density that all workers sent together over steps, and the one that was set as a dashed line."""
    set_to = {row.case.model: row.case.density or 0.0 for row in runs(rows, METHODS.values())}
    return draw_curves(
        NAME, shown(rows), COLOURS, "union_density", out, labels=("step", "density sent by all"), paper=set_to
    )


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return densities over the one that was set, in the second half of training."""
    batch, epochs = workload("resnet18_cifar10")["batch_size"], int(number("micro.setup.decay_epoch"))
    images = TRAINING_IMAGES // WORKERS
    first, last = epochs * (images // batch), epochs * -(-images // batch)
    found = [
        held("micro.iii.hard_fixed", 1.0, tolerance=0.0, reason="the threshold is an option of the compressor",
             source="restated"),
        says("micro.fig5.drop", first <= number("micro.fig5.drop") <= last, f"{first:,} to {last:,} iterations",
             "150 epochs of 97 or 98 iterations: when the paper's learning rate decays (MI-04)", source="restated"),
    ]  # fmt: skip
    for methods in shown(rows).values():
        ratio = {name: late(runs) for name, runs in methods.items()}
        if all(value is not None for value in ratio.values()) and {"Top-k", "MiCRO", "hard threshold"} <= set(ratio):
            micro, topk, hard = (ratio[name] or 0.0 for name in ("MiCRO", "Top-k", "hard threshold"))
            texts = {name: f"{value:.2f}x of what was set" for name, value in ratio.items()}
            found += [
                says(
                    "micro.fig5.micro",
                    abs(micro - 1) <= BAND,
                    texts["MiCRO"],
                    f"{SCALE}: {texts['MiCRO']}",
                    source="measured",
                ),
                says(
                    "micro.fig5.topk",
                    1 < topk <= GROUP,
                    texts["Top-k"],
                    f"{GROUP} workers, {SCALE}: {texts['Top-k']}",
                    source="measured",
                ),
                _hard(methods["hard threshold"], hard),
            ]
            break
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def _hard(rows: list[Row], ratio: float) -> Verdict:
    """Return whether the density of a hard threshold is far above the one that was set, and rises in every run."""
    halves = []
    for row in rows:
        density = [value for value in curve(row).get("union_density", []) if value is not None]
        halves.append((fmean(density[: len(density) // 2]), fmean(density[len(density) // 2 :])))
    rising = sum(early < end for early, end in halves)
    above, always = ratio > 1 + BAND, rising == len(halves)
    outcome: Outcome = "agrees" if above and always else "partly" if above or always else "disagrees"
    text = f"{ratio:.2f}x of what was set; rises in {rising} of {len(halves)} runs"
    return says("micro.fig5.hard", outcome, text, f"{SCALE}: {text}", source="measured")


def shown(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows on as many workers."""
    return grouped(runs(rows, METHODS.values()), method)
