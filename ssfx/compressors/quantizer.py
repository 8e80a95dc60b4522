"""What quantisers share: all segments of a batch in one call, sizes in blocks, and every element sent in a few bits.

Source: D-13, D-25.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ssfx.compressors.base import Compressor, Context, Layout, Payload
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Coding, quantizers
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    import torch


class Quantizer(Compressor):
    """A compressor that sends every element as a code of 1 to 8 bits, with a scale per block of elements."""

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write scales and codes of one segment: a batch of one."""
        self.compress_batch(Batch.single(a, payload, ctx))

    @abstractmethod
    def compress_batch(self, batch: Batch) -> None:
        """Accumulate, and fill scales and codes of every segment; what is not finite makes a scale NaN or Inf."""


class BlockQuantizer(Quantizer):
    """A quantiser with scales for each bucket of elements, which one call encodes and one decodes."""

    coding: Coding
    """What the buckets are made of."""

    def layout(self, numel: int, density: float) -> Layout:
        """The scales of every bucket, and ceil(bits * n / 8) bytes."""
        scales = self.coding.scales * num_blocks(numel, self.coding.bucket)
        return Layout(scales=scales, code_bytes=code_bytes(numel, self.coding.bits))

    def compress_batch(self, batch: Batch) -> None:
        """Write scales and codes of every segment."""
        quantizers(batch.vector.device).encode(batch, self.coding)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale times what the codes stand for."""
        quantizers(out.device).add(payload, self.coding, out, scale)


def coding_of(compressor: Compressor) -> Coding | None:
    """Return what the buckets of a compressor are made of; None where it has none."""
    return compressor.coding if isinstance(compressor, BlockQuantizer) else None


def check_block(name: str, size: int) -> None:
    """Raise ValueError unless `size` is 0, for one block of everything, or a positive multiple of 8."""
    if size < 0 or size % 8:
        raise ValueError(f"{name} must be a multiple of 8, or 0 for the whole segment, got {size}")


def num_blocks(numel: int, size: int) -> int:
    """Return how many blocks `numel` elements make; 0 as a size means one block."""
    return -(-numel // (size or max(1, numel)))


def code_bytes(numel: int, bits: int) -> int:
    """Return the bytes of `numel` codes."""
    return -(-numel * bits // 8)
