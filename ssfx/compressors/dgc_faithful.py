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

SAMPLE_FRACTION = 0.01
"""Of a tensor at least, as in the paper."""
LOWER, UPPER = 0.8, 1.3
"""The adaptation loop goes on while this share of num_selects is not reached, or exceeded."""
MAX_ADAPTATION = 10


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How one tensor is sampled at one density, in elements; `num_samples` = numel means everything is looked at."""

    num_samples: int
    stride: int
    top_k_samples: int
    num_selects: int


@dataclass(frozen=True, slots=True)
class FaithfulSelection:
    """Selected positions, ascending, and the (threshold, count) pairs that led there; None stands for re-selection."""

    indices: torch.Tensor
    trace: tuple[tuple[float | None, int], ...]


def sampling_plan(numel: int, density: float) -> SamplingPlan:
    """Return the authors' plan: at least 2 / density samples at an odd stride that divides no power of two."""
    whole = math.ceil(2 / density - 1e-6)
    if numel <= whole:
        samples, stride = numel, 1
    else:
        want = max(math.ceil(numel * SAMPLE_FRACTION - 1e-6), whole)
        stride = 32 * math.ceil(numel / want / 32) + 1
        while numel // stride < want:
            stride -= 8
        samples = numel // stride
    return SamplingPlan(samples, stride, k_ceil(samples, density), k_ceil(numel, density))


def select(a: torch.Tensor, plan: SamplingPlan, start: int) -> FaithfulSelection:
    """Return what the authors' loop selects from flat `a`, sampling from `start` in [0, stride).

    Waits for the device. At most `num_selects` positions; none when `a` is all zero or when the loop ends above every
    magnitude.
    """
    everything = plan.num_samples == a.numel()
    sample = (a if everything else a[start :: plan.stride]).abs()
    threshold = float(torch.topk(sample, plan.top_k_samples, sorted=False).values.amin())
    indices = at_least(a, threshold)
    trace: list[tuple[float | None, int]] = [(threshold, indices.numel())]
    for _ in range(0 if everything else MAX_ADAPTATION):
        count = indices.numel()
        if count > UPPER * plan.num_selects:
            indices = indices[top_k(a[indices], plan.num_selects)]
            trace.append((None, indices.numel()))
            break
        if count >= LOWER * plan.num_selects or threshold <= 0:
            break
        threshold *= LOWER
        indices = at_least(a, threshold)
        trace.append((threshold, indices.numel()))
    return FaithfulSelection(indices[: plan.num_selects], tuple(trace))
