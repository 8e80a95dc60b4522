"""Random-k: keep k positions that depend on nothing but the seed, the tensor and the step."""

from __future__ import annotations

import math

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.kernels.narrow import narrow
from ssfx.compressors.sparse import predivisor
from ssfx.compressors.topk import TopKOptions
from ssfx.core.lazy import torch
from ssfx.wire.batch import key, splitmix64


@compressors.register(TopKOptions())
class RandomK(Compressor):
    """Every element is kept with probability k / n; positions are an affine sequence, distinct by construction.

    All ranks keep the same positions, so that only values travel and the network adds them. 16-bit values are divided
    by the world size, so that their sum over all ranks stays in range.
    """

    in_arrays = True
    name = "randomk"
    summary = "random-k from a shared seed: values only"
    source = "Stich et al. 2018, Wangni et al. 2018; D-54"
    additive = True
    options: TopKOptions

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) values."""
        return Layout(values=k_floor(numel, density), value_dtype=self.options.value_dtype)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the values at this step's positions, divided in float32 before they are rounded."""
        share = predivisor(self.options.value_dtype, ctx.world_size)
        narrow(payload.values, a.index_select(0, _positions(a, payload, ctx)).mul_(1 / share), share)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at this step's positions."""
        share = predivisor(self.options.value_dtype, ctx.world_size)
        out.index_add_(0, _positions(out, payload, ctx), payload.values.to(out.dtype), alpha=scale * share)


def _positions(a: torch.Tensor, payload: Payload, ctx: Context) -> torch.Tensor:
    return affine_indices(key(ctx.seed, ctx.tensor_id, ctx.step), a.numel(), payload.values.numel(), a.device)


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
