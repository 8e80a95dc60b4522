"""The selection of the DGC authors' code, step by step: strided sample, threshold, adaptation loop.

Kept for comparison with published results; the fast mode of `dgc` replaces it.

Source: the rule of synxlin/deep-gradient-compression; D-21.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssfx.compressors.base import k_ceil
from ssfx.compressors.sparse import at_least, top_k
from ssfx.core.lazy import torch

MIN_SAMPLE_FRACTION = 0.01


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How one tensor is sampled at one density, in elements; `num_samples` = numel means everything is looked at."""

    num_samples: int
    stride: int
    top_k_samples: int
    num_selects: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """When the adaptation loop stops, as factors of num_selects, and what it does with too many elements."""

    lower: float = 0.8
    upper: float = 1.3
    max_adaptation: int = 10
    resample: bool = True


@dataclass(frozen=True, slots=True)
class FaithfulSelection:
    """Selected positions, ascending, and the (threshold, count) pairs that led there; None stands for re-selection."""

    indices: torch.Tensor
    trace: tuple[tuple[float | None, int], ...]


def sampling_plan(numel: int, density: float, sample_fraction: float) -> SamplingPlan:
    """Return the authors' plan: at least 2 / density samples at an odd stride that divides no power of two."""
    whole = math.ceil(2 / density - 1e-6)
    if numel <= whole:
        samples, stride = numel, 1
    else:
        want = max(math.ceil(numel * max(sample_fraction, MIN_SAMPLE_FRACTION) - 1e-6), whole)
        stride = 32 * math.ceil(numel / want / 32) + 1
        while numel // stride < want:
            stride -= 8
        samples = numel // stride
    return SamplingPlan(samples, stride, k_ceil(samples, density), k_ceil(numel, density))


def select(a: torch.Tensor, plan: SamplingPlan, start: int, bounds: Bounds) -> FaithfulSelection:
    """Return what the authors' loop selects from flat `a`, sampling from `start` in [0, stride).

    Waits for the device. At most `num_selects` positions; none when `a` is all zero or when the loop ends above every
    magnitude.
    """
    everything = plan.num_samples == a.numel()
    sample = (a if everything else a[start :: plan.stride]).abs()
    threshold = float(torch.topk(sample, plan.top_k_samples, sorted=False).values.amin())
    indices = at_least(a, threshold)
    trace: list[tuple[float | None, int]] = [(threshold, indices.numel())]
    for _ in range(0 if everything else bounds.max_adaptation):
        count = indices.numel()
        if count > bounds.upper * plan.num_selects and bounds.resample:
            indices = indices[top_k(a[indices], plan.num_selects)]
            trace.append((None, indices.numel()))
            break
        if count > bounds.upper * plan.num_selects:
            threshold *= bounds.upper
        elif count < bounds.lower * plan.num_selects and threshold > 0:
            threshold *= bounds.lower
        else:
            break
        indices = at_least(a, threshold)
        trace.append((threshold, indices.numel()))
    return FaithfulSelection(indices[: plan.num_selects], tuple(trace))
