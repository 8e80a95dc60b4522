"""What sparsifiers share: selection by magnitude, value types, and writing and adding (indices, values) payloads."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from ssfx.compressors.base import Compressor, Context, Layout, Payload
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.kernels.narrow import narrow
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    import torch


def top_k(a: torch.Tensor, k: int) -> torch.Tensor:
    """Return the positions (int64) of the `k` largest magnitudes of flat float32 `a`; ties go to the lower position."""
    k = min(k, a.numel())
    payload = Payload.allocate(Layout(indices=k, values=k), a.device)
    ctx = Context(step=0, tensor_id=0, rank=0, world_size=1, density=1.0)
    rule = Rule((Bound(k, k, k),), zeros=True)
    kernels(a.device).select(Batch.single(a, payload, ctx), rule)
    return payload.indices.long()


def at_least(a: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the positions (int64) where the magnitude of flat `a` is positive and at least `threshold`."""
    magnitude = a.abs()
    return torch.nonzero((magnitude >= threshold) & (magnitude > 0)).view(-1)


ValueDtype = Literal["float32", "float16", "bfloat16"]
"""The dtypes in which values travel."""


def predivisor(value_dtype: str, world_size: int) -> int:
    """Return what values are divided by before ranks add them: 16-bit sums must stay in range (D-13)."""
    return 1 if value_dtype == "float32" else world_size


class Sparsifier(Compressor):
    """A compressor whose payload is (indices, values), decoded by an indexed add."""

    sparse = True

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at the payload's positions."""
        out.index_add_(0, payload.indices, payload.values.to(out.dtype), alpha=scale)


class Selector(Sparsifier):
    """A sparsifier that selects by magnitude, all segments of a batch in one call; one tensor is a batch of one."""

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the selected elements in ascending order of position, padded with (0, 0)."""
        self.compress_batch(Batch.single(a, payload, ctx))

    @abstractmethod
    def compress_batch(self, batch: Batch) -> None:
        """Accumulate, select, and fill the payload of every segment."""


def write(payload: Payload, indices: torch.Tensor, a: torch.Tensor) -> None:
    """Fill the payload with `indices` (ascending, at most its capacity) and their values in `a`; pad with (0, 0)."""
    kept = indices.numel()
    payload.indices[:kept].copy_(indices)
    narrow(payload.values[:kept], a.index_select(0, indices))
    if kept < payload.indices.numel():
        payload.indices[kept:].zero_()
        payload.values[kept:].zero_()
