"""DGC selection: a threshold from a sample, one pass to apply it, exact re-selection when too many elements pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_ceil
from ssfx.compressors.batch import Batch, Part
from ssfx.compressors.dgc_faithful import SAMPLE_FRACTION, sampling_plan, select
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.sparse import Selector, ValueDtype, write
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.wire.batch import key

TAIL = 64
"""Samples above the threshold: its count is then right within about 12 % (D-10)."""
LEAST = 0.8
"""Fewer survivors than this share of k make the step fall back to exact top-k, as in the authors' code."""
CAPACITY = 1.3
"""More survivors than this times k are cut to that many by exact re-selection, as in the authors' code."""
_SAMPLE_AT_MOST = 1 / 16


@dataclass(frozen=True)
class DGCOptions(Bounded):
    """`mode`: "fast" sends at most 1.3 k elements; "faithful" is the loop of the authors' code and sends at most k.

    `value_dtype` of the values on the wire.
    """

    mode: Literal["fast", "faithful"] = "fast"
    value_dtype: ValueDtype = "float32"


@compressors.register(DGCOptions())
class DGC(Selector):
    """About k = ceil(density * n) of the largest magnitudes, in a payload of fixed capacity (D-5, D-21)."""

    in_arrays = True
    name = "dgc"
    summary = "DGC: sampled threshold, exact re-selection on overflow, fixed capacity"
    source = "Lin et al. 2018; D-21"
    options: DGCOptions

    def layout(self, numel: int, density: float) -> Layout:
        """One count, and CAPACITY * k indices and values (k in faithful mode)."""
        k = k_ceil(numel, density)
        slots = k if self.options.mode == "faithful" else capacity(k, numel, CAPACITY)
        return Layout(counts=1, indices=slots, values=slots, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write the selected elements, padded with (0, 0), and how many they are."""
        if self.options.mode == "fast":
            kernels(batch.vector.device).select(batch, batch.once("rule", lambda: sampled(batch)))
        else:
            Compressor.compress_batch(self, batch)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """As `compress_batch`, for one tensor."""
        if self.options.mode == "fast":
            super().compress(a, payload, ctx)
            return
        k = k_ceil(a.numel(), ctx.density)
        if k >= a.numel():
            indices = torch.arange(a.numel(), device=a.device)
        else:
            plan = sampling_plan(a.numel(), ctx.density)
            indices = select(a, plan, key(ctx.seed, ctx.tensor_id, ctx.step, ctx.rank) % plan.stride).indices
            if not indices.numel() and a.any():
                # a threshold that jumped over everything must not silence the tensor for ever (D-2)
                indices = ((torch.arange(k, device=a.device) + ctx.step * k) % a.numel()).sort().values
        write(payload, indices, a)
        payload.counts.fill_(indices.numel())


def sampled(batch: Batch) -> Rule:
    """Return the rule of mode=fast: a threshold from a sample with TAIL elements above it, where that pays off."""

    def bound(part: Part) -> Bound:
        k = k_ceil(part.numel, part.density)
        # so large a sample costs more than choosing exactly
        if k >= part.numel or TAIL / part.density > _SAMPLE_AT_MOST * part.numel:
            return Bound(k, k, k)
        return Bound(math.floor(LEAST * k), k, part.layout.indices)

    return Rule(tuple(map(bound, batch.parts)), tail=TAIL, sample_fraction=SAMPLE_FRACTION)


def capacity(k: Any, numel: Any, factor: float) -> Any:
    """Return the slots of a variable-count payload: ceil(factor * k), at most `numel`; of arrays, arrays."""
    if isinstance(numel, int):
        return min(numel, math.ceil(factor * k - 1e-6))
    return np.minimum(numel, np.ceil(factor * k - 1e-6))
