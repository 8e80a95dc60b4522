"""Random-k: keep k positions that depend on nothing but the seed, the tensor and the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssfx.compressors.base import Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.kernels.narrow import narrow
from ssfx.compressors.sparse import Sparsifier, ValueDtype
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.wire.batch import key, splitmix64


@dataclass(frozen=True)
class RandomKOptions(Bounded):
    """`shared`: all ranks keep the same positions, so only values travel and the network adds them.

    `unbiased` multiplies values by n / k, for use without error feedback. `value_dtype` of the values on the wire.
    """

    shared: bool = True
    unbiased: bool = False
    value_dtype: ValueDtype = "float32"


@compressors.register(RandomKOptions())
class RandomK(Sparsifier):
    """Every element is kept with probability k / n; positions are an affine sequence, distinct by construction.

    With `shared`, 16-bit values are divided by the world size so that their sum over all ranks stays in range.
    """

    in_arrays = True
    name = "randomk"
    summary = "random-k from a shared seed (values only) or from one seed per rank"
    source = "Stich et al. 2018, Wangni et al. 2018; D-54"
    additive = True
    sparse = False

    def __init__(self, options: RandomKOptions) -> None:
        self.options = options
        self.additive = options.shared
        self.sparse = not options.shared
        self.error_feedback = not options.unbiased

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) values, and as many indices when ranks keep different positions."""
        k = k_floor(numel, density)
        return Layout(indices=0 if self.options.shared else k, values=k, value_dtype=self.options.value_dtype)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the values at this step's positions, scaled in float32 before they are rounded."""
        indices = self._indices(a, payload, ctx)
        if not self.options.shared:
            indices = indices.sort().values
            payload.indices.copy_(indices)
        values = a.index_select(0, indices)
        gain = a.numel() / values.numel() if self.options.unbiased else 1.0
        share = self._predivide(ctx)
        narrow(payload.values, values.mul_(gain / share), round(share))

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at this step's positions."""
        if self.options.shared:
            indices = self._indices(out, payload, ctx)
            out.index_add_(0, indices, payload.values.to(out.dtype), alpha=scale * self._predivide(ctx))
        else:
            super().decompress_add(payload, out, ctx, scale)

    def _indices(self, a: torch.Tensor, payload: Payload, ctx: Context) -> torch.Tensor:
        rank = 0 if self.options.shared else ctx.rank
        h = key(ctx.seed, ctx.tensor_id, ctx.step, rank)
        return affine_indices(h, a.numel(), payload.values.numel(), a.device)

    def _predivide(self, ctx: Context) -> int:
        return ctx.world_size if self.options.shared and self.options.value_dtype != "float32" else 1


def affine_stride_and_offset(h: int, numel: int) -> tuple[int, int]:
    """Return (stride, offset) of the sequence of key `h`; the stride is near the golden section, coprime to `numel`."""
    offset = splitmix64(h ^ 1) % numel
    stride = (math.floor(0.6180339887 * numel) + splitmix64(h ^ 2) % max(1, numel // 8)) % numel
    stride = max(1, stride)
    while math.gcd(stride, numel) != 1:
        stride += 1
    return stride, offset


def affine_indices(h: int, numel: int, k: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return `k` distinct positions (int64) below `numel` in sequence order, the same on every device."""
    if not numel:
        return torch.empty(0, dtype=torch.int64, device=device)
    stride, offset = affine_stride_and_offset(h, numel)
    return (torch.arange(k, device=device) * stride + offset) % numel
