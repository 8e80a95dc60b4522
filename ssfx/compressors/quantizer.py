"""What quantisers share: all segments of a batch in one call, sizes in blocks, and every element sent in a few bits.

Source: D-13, D-25.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.batch import Batch
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
