"""Exact top-k: keep the k largest magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.compressors.base import Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.selection import top_k
from ssfx.compressors.sparse import Sparsifier, check_value_dtype, write

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TopKOptions:
    """`value_dtype` of the values on the wire: float32, float16 or bfloat16."""

    value_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_value_dtype(self.value_dtype)


@compressors.register(TopKOptions())
class TopK(Sparsifier):
    """Among all payloads of k elements the one that leaves the least behind (codec specification 4.2)."""

    name = "topk"
    summary = "exact top-k by magnitude, ties to the lower index"
    source = "codecs spec 4.2; Aji & Heafield 2017, Stich et al. 2018"

    def __init__(self, options: TopKOptions) -> None:
        self.options = options

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) indices and values."""
        k = k_floor(numel, density)
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the k largest magnitudes in ascending order of position."""
        write(payload, top_k(a, payload.indices.numel()), a)
