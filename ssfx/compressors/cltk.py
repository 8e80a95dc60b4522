"""CLT-k: one rank after the other chooses the positions at which all ranks send."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.kernels.narrow import narrow
from ssfx.compressors.sparse import ValueDtype, predivisor, top_k
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class CLTKOptions(Bounded):
    """`value_dtype` of the values on the wire."""

    value_dtype: ValueDtype = "float32"


@compressors.register(CLTKOptions())
class CLTK(Compressor):
    """The leader, rank step mod world size, sends its top-k positions; then the values there are added up.

    Positions travel as a sum to which the other ranks give zeros; only the leader selects.
    """

    in_arrays = True
    name = "cltk"
    summary = "cyclic local top-k: a leader chooses, everybody's values are added"
    source = "Chen et al. 2020 (ScaleCom); D-38"
    additive = True
    rounds = 2
    options: CLTKOptions

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) positions in the first round, as many values in the second."""
        k = k_floor(numel, density)
        return Layout(first=k, first_dtype="int32", values=k, value_dtype=self.options.value_dtype)

    def propose(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the positions of the k largest magnitudes, or zeros unless this rank leads."""
        if ctx.step % ctx.world_size == ctx.rank:
            payload.first.copy_(top_k(a, payload.first.numel()))
        else:
            payload.first.zero_()

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the values at the leader's positions."""
        share = predivisor(self.options.value_dtype, ctx.world_size)
        narrow(payload.values, a.index_select(0, payload.first).div_(share), share)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at the leader's positions."""
        share = predivisor(self.options.value_dtype, ctx.world_size)
        out.index_add_(0, payload.first, payload.values.to(out.dtype), alpha=scale * share)
