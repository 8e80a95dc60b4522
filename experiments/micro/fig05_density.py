"""MiCRO Fig. 5: density over training of four sparsifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Outcome, Source, Verdict
from experiments.common.evaluation.configured import workload
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, no_row
from experiments.common.evaluation.judging import complete, held, number, says
from experiments.common.evaluation.micro_runs import COLOURS, DENSITY, GROUP, ONE, late, network, runs
from experiments.common.evaluation.quality_curves import curve, draw_curves
from ssfx.core.rows import Row

NAME = "micro.fig5"
TITLE = "Density over steps of four sparsifiers"
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND

BAND = 0.1
"""Relative difference within which a density counts as the one that was set."""
TRAINING_IMAGES, WORKERS = 50_000, 16
"""Of CIFAR-10 and CIFAR-100, and of the paper."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the density that all workers sent together over steps, and the one that was set as a dashed line."""
    own = runs(rows)
    return draw_curves(NAME, network(own), own, COLOURS, "union_density", "density sent by all", out, set_to=DENSITY)


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
    own = runs(rows)
    for claim, name, low, high in (
        ("micro.fig5.micro", "MiCRO", 1 - BAND, 1 + BAND),
        ("micro.fig5.topk", "Top-k", 1 + 1e-9, float(GROUP)),
    ):
        ratio = late(own.get(name, ()))
        if ratio is None:
            found.append(no_row(claim, [name]))
        else:
            text = f"{ratio:.2f}x of what was set"
            by_rule: Source = "restated" if name == "Top-k" else "measured"  # the workers' number bounds the union
            found.append(says(claim, low <= ratio <= high, text, ONE, source=by_rule))
    hard = own.get("hard threshold", [])
    ratio = late(hard)
    found.append(no_row("micro.fig5.hard", ["hard threshold"]) if ratio is None else _hard(hard, ratio))
    return complete(NAME, found, COMMAND, cost=COST)


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
    return says("micro.fig5.hard", outcome, text, ONE, source="measured")
