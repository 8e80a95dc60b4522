"""Five sparsifiers on made-up gradients of many workers: what each selects, with error feedback, step by step.

Gradients are Laplace distributed, a part common to all workers and a part of each one's own. The rules are those of the
compressors here (partition, threshold control and threshold fit are their own functions), on arrays without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.compressors.hard_threshold import threshold_for

Array = NDArray[np.float64]
Picks = list[NDArray[np.int64]]

WORKERS = 16
ELEMENTS = 2_000
DENSITY = 0.01
STEPS = {"micro": 900}
"""A threshold that moves by half a percent a step needs 460 for a factor of ten."""
FEW_STEPS = 80
"""Of the others."""
SCALE = 0.02
"""Of the gradients; their size is about that of MiCRO's first threshold."""
STAGES = (0.25, 0.25, 0.16)
"""Shares that SIDCo's stages keep one after another: together the density."""
COMMON = 0.5
"""Share of a gradient's magnitude that all workers have in common."""
SPARSIFIERS = ("topk", "cltk", "hardthr", "sidco", "micro")


@dataclass(frozen=True)
class Selection:
    """What was selected in the last quarter of the steps, on average.

    `ratio`: elements that some worker selected, over those asked for. `overlap`: elements that several workers
    selected. `deciding`, `idle`: workers whose own values decide, and workers that select nothing. `history` holds
    (ratio, threshold, mean error norm) of every step.
    """

    ratio: float
    overlap: float
    deciding: float
    idle: float
    history: tuple[tuple[float, float, float], ...]


def gradients(rng: np.random.Generator, scale: float, workers: int = WORKERS) -> Array:
    """Return one step's gradients, a row for each worker."""
    common = COMMON * rng.laplace(size=ELEMENTS)
    return SCALE * scale * (common + (1 - COMMON) * rng.laplace(size=(workers, ELEMENTS)))


@cache
def run(sparsifier: str, scale: float = 1.0, workers: int = WORKERS) -> Selection:
    """Return what a sparsifier selects when gradients have this scale; the hand-set threshold is right for scale 1."""
    rng = np.random.default_rng(0)
    steps = STEPS.get(sparsifier, FEW_STEPS)
    k = int(DENSITY * ELEMENTS)
    pick, state = RULES[sparsifier], State(k)
    errors = np.zeros((workers, ELEMENTS))
    history, overlaps, deciding, idle = [], [], [], []
    for step in range(steps):
        errors += gradients(rng, scale, workers)
        chosen = pick(errors, step, state)
        union, counts = np.unique(np.concatenate(chosen), return_counts=True)
        state.selected = sum(map(len, chosen)) if sparsifier == "micro" else len(union)
        for row, own in zip(errors, chosen, strict=True):
            row[union if sparsifier in ("cltk", "micro") else own] = 0.0
        norm = float(np.linalg.norm(errors, axis=1).mean())
        history.append((len(union) / k, state.threshold, norm))
        overlaps.append(int((counts > 1).sum()))
        deciding.append(sum(len(own) > 0 for own in chosen))
        idle.append(sum(len(own) == 0 for own in chosen))
    late = slice(3 * steps // 4, None)
    mean = [float(np.mean(values[late])) for values in ([h[0] for h in history], overlaps, deciding, idle)]
    return Selection(mean[0], mean[1], mean[2], mean[3], tuple(history))


@dataclass
class State:
    """What a sparsifier keeps: the target count, its threshold and how many were selected last."""

    k: int
    threshold: float = 0.0
    selected: int = 0


def topk(errors: Array, _step: int, state: State) -> Picks:
    """Every worker takes its own k largest."""
    return list(np.argpartition(-np.abs(errors), state.k, axis=1)[:, : state.k])


def cltk(errors: Array, step: int, state: State) -> Picks:
    """One worker in turn takes its k largest; the others select nothing."""
    leader = step % len(errors)
    own = np.argpartition(-np.abs(errors[leader]), state.k)[: state.k]
    return [own if rank == leader else own[:0] for rank in range(len(errors))]


def hardthr(errors: Array, _step: int, state: State) -> Picks:
    """Every worker takes all from a constant on, which was set so that one gradient of scale 1 has k of them."""
    if not state.threshold:
        sample = np.sort(np.abs(gradients(np.random.default_rng(1), 1.0)), axis=1)
        state.threshold = float(sample[:, -state.k].mean())
    return [np.flatnonzero(np.abs(row) >= state.threshold) for row in errors]


def sidco(errors: Array, _step: int, _state: State) -> Picks:
    """Every worker takes what exceeds a threshold fitted to its magnitudes, stage by stage to those above the last."""
    chosen: Picks = []
    for magnitudes in np.abs(errors):
        threshold = 0.0
        for share in STAGES:
            above = magnitudes[magnitudes > threshold]
            threshold -= float((above - threshold).mean()) * log(share) if len(above) else 0.0
        chosen.append(np.flatnonzero(magnitudes > threshold))
    return chosen


def micro(errors: Array, step: int, state: State) -> Picks:
    """Every worker takes what exceeds a shared threshold in a part of its own; the threshold follows the last count."""
    if step == 0:
        state.threshold = threshold_for(state.k)
    else:
        state.threshold *= threshold_scale(state.selected, state.k)
    starts = split_starts(ELEMENTS, len(errors))
    chosen: Picks = []
    for rank, row in enumerate(errors):
        part = partition_of(rank, step, len(errors))
        own = starts[part] + np.flatnonzero(np.abs(row[starts[part] : starts[part + 1]]) > state.threshold)
        size = starts[part + 1] - starts[part]
        chosen.append(own if len(own) else np.array([starts[part] + step % size]))
    return chosen


RULES: dict[str, Callable[[Array, int, State], Any]] = {
    "topk": topk,
    "cltk": cltk,
    "hardthr": hardthr,
    "sidco": sidco,
    "micro": micro,
}


def build_up_without_common_part() -> float:
    """Return how many times k a union of Top-k selections holds when workers have nothing in common."""
    return (1 - (1 - DENSITY) ** WORKERS) / DENSITY
