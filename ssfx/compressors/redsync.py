"""RedSync: a threshold between the mean and the largest magnitude, by binary search; and quantised. Source: D-22."""

from __future__ import annotations

from types import ModuleType

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, settled, sizes
from ssfx.core.lazy import torch

PROBES = 3
"""Halvings of the way from the mean to the largest magnitude, until it is a fifth: the paper's resolution."""


@compressors.register(ThresholdOptions())
class RedSync(ThresholdSelector):
    """An interval is halved until the count is between k and 2 k; with three probes it may be far off (D-22)."""

    name = "redsync"
    summary = "RedSync: threshold by binary search between mean and maximum"
    source = "Fang et al. 2019; D-22"

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + ratio * (largest - mean), for the ratio that the search ends with."""
        moments, (n, k) = kernel.moments(batch), sizes(batch)
        mean = moments.absolute / n

        def level(ratio: torch.Tensor) -> torch.Tensor:
            return above(mean + ratio * (moments.largest - mean))

        low, high, active = torch.zeros_like(n), torch.ones_like(n), k < n
        for _ in range(PROBES - 1):  # the last probe is not followed by another
            if settled(active):
                break
            ratio = (low + high) / 2
            count = kernel.count(batch, torch.where(active, level(ratio), torch.nan))
            active = active & ~((k < count) & (count < 2 * k))
            few = count < k / 2
            high, low = torch.where(active & few, ratio, high), torch.where(active & ~few, ratio, low)
        return level((low + high) / 2)


PADDING = -1
"""An unused slot: position 0 would be given the common value."""


@compressors.register()
class RedSyncQuant(Compressor):
    """The projection of a onto the indicator of its k largest elements of one sign: |a - C|^2 = |a|^2 - k v^2."""

    name = "redsync_quant"
    summary = "RedSync quantised: k positions of the sign whose turn it is, and their mean"
    source = "Fang et al. 2019; D-22"

    def layout(self, numel: int, density: float) -> Layout:
        """One scale and k = floor(density * numel) indices."""
        return Layout(scales=1 if numel else 0, indices=k_floor(numel, density))

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write positions and mean of the k largest positive elements, of negative ones in odd steps."""
        k, sign = payload.indices.numel(), -1 if ctx.step % 2 else 1
        chosen = Payload.allocate(Layout(indices=k, values=k), a.device)
        one_sign = Batch.single((a * sign).clamp_(min=0), chosen, ctx)
        kernels(a.device).select(one_sign, Rule((Bound(k, k, k),)))
        used = chosen.values > 0
        payload.scales.copy_(sign * chosen.values.double().sum() / used.sum().clamp(min=1))
        payload.indices.copy_(torch.where(used, chosen.indices, PADDING))

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * mean at the payload's positions."""
        used = payload.indices != PADDING
        values = torch.where(used, payload.scales.to(out.dtype), 0)
        out.index_add_(0, payload.indices.clamp(min=0), values, alpha=scale)
