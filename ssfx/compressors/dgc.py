"""DGC selection: a threshold from a sample, one pass to apply it, exact re-selection when too many elements pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.compressors.base import Context, Layout, Payload, compressors, k_ceil
from ssfx.compressors.dgc_faithful import MIN_SAMPLE_FRACTION, Bounds, sampling_plan, select
from ssfx.compressors.keys import key
from ssfx.compressors.selection import at_least_array, sample_rank, sample_runs, sampled_threshold, top_k_array
from ssfx.compressors.sparse import Sparsifier, check_value_dtype, write
from ssfx.lazy import numpy as np
from ssfx.lazy import torch

if TYPE_CHECKING:
    from ssfx.compressors.selection import Floats, Positions

_SAMPLE_ABOVE = 1 << 14  # elements up to which exact top-k is faster than sampling


@dataclass(frozen=True)
class DGCOptions:
    """How a threshold is found and what happens when it selects too few or too many elements.

    fast: at least `sample_fraction` is sampled; more than `capacity` * k survivors are cut to that many by exact
    re-selection, fewer than `lower` * k make the step fall back to exact top-k.
    faithful: the loop of the authors' code with `upper`, `lower`, `max_adaptation` and `resample`; sends at most k.
    Options of the other mode are refused.
    """

    mode: str = "fast"
    sample_fraction: float = 0.01
    lower: float = 0.8
    upper: float = 1.3
    max_adaptation: int = 10
    resample: bool = True
    capacity: float = 1.3
    value_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_value_dtype(self.value_dtype)
        if self.mode not in ("fast", "faithful"):
            raise ValueError(f"mode must be fast or faithful, got {self.mode}")
        if not 0 < self.sample_fraction <= 1:
            raise ValueError(f"sample_fraction must be in (0, 1], got {self.sample_fraction}")
        if not 0 < self.lower <= 1 <= min(self.upper, self.capacity):
            raise ValueError("lower must be in (0, 1], upper and capacity at least 1")
        if self.max_adaptation < 0:
            raise ValueError(f"max_adaptation must not be negative, got {self.max_adaptation}")
        if self.mode == "fast" and (self.upper, self.max_adaptation, self.resample) != (1.3, 10, True):
            raise ValueError("upper, max_adaptation and resample have no effect in mode=fast; add mode=faithful")
        if self.mode == "faithful" and self.capacity != 1.3:
            raise ValueError("capacity has no effect in mode=faithful, which sends at most k elements; use mode=fast")
        if self.mode == "faithful" and self.sample_fraction < MIN_SAMPLE_FRACTION:
            raise ValueError(f"mode=faithful samples at least {MIN_SAMPLE_FRACTION}; use mode=fast for less")


@compressors.register(DGCOptions())
class DGC(Sparsifier):
    """About k = ceil(density * n) of the largest magnitudes, in a payload of fixed capacity (codec spec 1.6, 4.4)."""

    name = "dgc"
    summary = "DGC: sampled threshold, exact re-selection on overflow, fixed capacity"
    source = "codecs spec 4.4; Lin et al. 2018"

    def __init__(self, options: DGCOptions) -> None:
        self.options = options

    def layout(self, numel: int, density: float) -> Layout:
        """One count, and `capacity` * k indices and values (k in faithful mode)."""
        k = k_ceil(numel, density)
        slots = k if self.options.mode == "faithful" else capacity(k, numel, self.options.capacity)
        return Layout(counts=1, indices=slots, values=slots, value_dtype=self.options.value_dtype)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the selected elements, padded with (0, 0), and how many they are."""
        if not a.numel():
            payload.counts.zero_()
            return
        k = k_ceil(a.numel(), ctx.density)
        h = key(ctx.seed, ctx.tensor_id, ctx.step, ctx.rank)
        if k >= a.numel():
            indices = torch.arange(k, device=a.device)
        elif self.options.mode == "faithful":
            indices = self._faithful(a, k, h, ctx)
        elif a.device.type == "cpu":
            indices = torch.from_numpy(self._fast(a.numpy(), k, payload.indices.numel(), h))
        else:
            self._static(a, ctx.density, payload, h)
            return
        write(payload, indices, a)
        payload.counts.fill_(indices.numel())

    def _fast(self, a: Floats, k: int, slots: int, h: int) -> Positions:
        if len(a) > _SAMPLE_ABOVE:
            threshold = sampled_threshold(a, k / len(a), self.options.sample_fraction, h)
            survivors = at_least_array(a, threshold)
            if len(survivors) > slots:
                return np.take(survivors, top_k_array(a[survivors], slots))
            if len(survivors) >= self.options.lower * k or threshold == 0:
                return survivors
        exact = top_k_array(a, k)
        return np.compress(a[exact] != 0, exact)

    def _faithful(self, a: torch.Tensor, k: int, h: int, ctx: Context) -> torch.Tensor:
        plan = sampling_plan(a.numel(), ctx.density, self.options.sample_fraction)
        bounds = Bounds(self.options.lower, self.options.upper, self.options.max_adaptation, self.options.resample)
        indices = select(a, plan, h % plan.stride, bounds).indices
        if not indices.numel() and a.any():
            # a threshold that jumped over everything must not silence the tensor for ever (codec spec 1.3)
            return ((torch.arange(k, device=a.device) + ctx.step * k) % a.numel()).sort().values
        return indices

    def _static(self, a: torch.Tensor, density: float, payload: Payload, h: int) -> None:
        """Fast mode in torch operators of static size: a device never waits for the host.

        Overflow keeps survivors in order of position from a rotating offset, underflow is accepted (codec spec 1.6).
        """
        numel, slots = a.numel(), payload.indices.numel()
        sample = sample_runs(a, density, self.options.sample_fraction, h).abs().reshape(-1)
        threshold = torch.topk(sample, sample_rank(sample.numel(), density), sorted=False).values.amin()
        magnitude = a.abs()
        offset = h % numel
        survives = ((magnitude >= threshold) & (magnitude > 0)).roll(-offset)
        found = torch.nonzero_static(survives, size=slots, fill_value=-1).view(-1)
        positions = torch.where(found >= 0, (found + offset) % numel, numel).sort().values
        used = positions < numel
        positions *= used
        payload.indices.copy_(positions)
        payload.values.copy_(a[positions] * used)
        payload.counts.copy_(used.sum())


def capacity(k: int, numel: int, factor: float) -> int:
    """Return the slots of a variable-count payload: ceil(factor * k), at most `numel`."""
    return min(numel, math.ceil(factor * k - 1e-6))
