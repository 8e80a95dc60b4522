"""DGC selection: a threshold from a sample, one pass to apply it, exact re-selection when too many elements pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_ceil
from ssfx.compressors.batch import Batch, Part
from ssfx.compressors.dgc_faithful import MIN_SAMPLE_FRACTION, Bounds, sampling_plan, select
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.sparse import Selector, ValueDtype, write
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.wire.batch import key

TAIL = 64
"""Samples above the threshold: its count is then right within about 12 % (D-10)."""
_SAMPLE_AT_MOST = 1 / 16


@dataclass(frozen=True)
class DGCOptions(Bounded):
    """`mode` is fast or faithful: how a threshold is found, and what happens when it selects too few or too many.

    fast: at least `sample_fraction` is sampled; more than `capacity` * k survivors are cut to that many by exact
    re-selection, fewer than `lower` * k make the step fall back to exact top-k.
    faithful: the loop of the authors' code with `upper`, `lower`, `max_adaptation` and `resample`; sends at most k.
    Options of the other mode are refused. `value_dtype` of the values on the wire.
    """

    mode: Literal["fast", "faithful"] = "fast"
    sample_fraction: Annotated[float, "(0, 1]"] = 0.01
    lower: float = 0.8
    upper: float = 1.3
    max_adaptation: Annotated[int, 0] = 10
    resample: bool = True
    capacity: float = 1.3
    value_dtype: ValueDtype = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.lower <= 1 <= min(self.upper, self.capacity):
            raise ValueError("lower must be in (0, 1], upper and capacity at least 1")
        if self.mode == "fast" and (self.upper, self.max_adaptation, self.resample) != (1.3, 10, True):
            raise ValueError("upper, max_adaptation and resample have no effect in mode=fast; add mode=faithful")
        if self.mode == "faithful" and self.capacity != 1.3:
            raise ValueError("capacity has no effect in mode=faithful, which sends at most k elements; use mode=fast")
        if self.mode == "faithful" and self.sample_fraction < MIN_SAMPLE_FRACTION:
            raise ValueError(f"mode=faithful samples at least {MIN_SAMPLE_FRACTION}; use mode=fast for less")


@compressors.register(DGCOptions())
class DGC(Selector):
    """About k = ceil(density * n) of the largest magnitudes, in a payload of fixed capacity (D-5, D-21)."""

    in_arrays = True
    name = "dgc"
    summary = "DGC: sampled threshold, exact re-selection on overflow, fixed capacity"
    source = "Lin et al. 2018; D-21"
    options: DGCOptions

    def layout(self, numel: int, density: float) -> Layout:
        """One count, and `capacity` * k indices and values (k in faithful mode)."""
        k = k_ceil(numel, density)
        slots = k if self.options.mode == "faithful" else capacity(k, numel, self.options.capacity)
        return Layout(counts=1, indices=slots, values=slots, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write the selected elements, padded with (0, 0), and how many they are."""
        if self.options.mode == "fast":
            kernels(batch.vector.device).select(batch, batch.once("rule", lambda: self._rule(batch)))
        else:
            Compressor.compress_batch(self, batch)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """As `compress_batch`, for one tensor."""
        if self.options.mode == "fast":
            super().compress(a, payload, ctx)
            return
        k = k_ceil(a.numel(), ctx.density)
        h = key(ctx.seed, ctx.tensor_id, ctx.step, ctx.rank)
        indices = self._faithful(a, k, h, ctx) if k < a.numel() else torch.arange(a.numel(), device=a.device)
        write(payload, indices, a)
        payload.counts.fill_(indices.numel())

    def _rule(self, batch: Batch) -> Rule:
        return Rule(
            tuple(self._bound(part) for part in batch.parts), tail=TAIL, sample_fraction=self.options.sample_fraction
        )

    def _bound(self, part: Part) -> Bound:
        k = k_ceil(part.numel, part.density)
        if k >= part.numel:
            return Bound(k, k, k)
        if TAIL / part.density > _SAMPLE_AT_MOST * part.numel:
            return Bound(k, k, k)  # so large a sample costs more than choosing exactly
        return Bound(math.floor(self.options.lower * k), k, part.layout.indices)

    def _faithful(self, a: torch.Tensor, k: int, h: int, ctx: Context) -> torch.Tensor:
        plan = sampling_plan(a.numel(), ctx.density, self.options.sample_fraction)
        bounds = Bounds(self.options.lower, self.options.upper, self.options.max_adaptation, self.options.resample)
        indices = select(a, plan, h % plan.stride, bounds).indices
        if not indices.numel() and a.any():
            # a threshold that jumped over everything must not silence the tensor for ever (D-2)
            return ((torch.arange(k, device=a.device) + ctx.step * k) % a.numel()).sort().values
        return indices


def capacity(k: Any, numel: Any, factor: float) -> Any:
    """Return the slots of a variable-count payload: ceil(factor * k), at most `numel`; of arrays, arrays."""
    if isinstance(numel, int):
        return min(numel, math.ceil(factor * k - 1e-6))
    return np.minimum(numel, np.ceil(factor * k - 1e-6))
