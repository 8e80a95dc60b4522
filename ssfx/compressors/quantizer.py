"""What quantisers share: all segments of a batch in one call, sizes in blocks, and every element sent in a few bits.

Scales may be shared: ranks agree on the largest of theirs first, so that levels add up as integers of one byte.

Source: D-13, D-25.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from ssfx.compressors.base import Compressor, Context, Payload
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.core.errors import ConfigError
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


_MOST = 127


def check_range(spec: str, top: int, world_size: int) -> None:
    """Raise ConfigError where the sum of all ranks' levels, up to `top` each, may not fit into a signed byte."""
    if top * world_size > _MOST:
        raise ConfigError(
            f"compressor={spec} adds levels up to {top} of {world_size} ranks in one byte, which holds {_MOST}; "
            f"use at most {_MOST // top} ranks, or shared=False"
        )


def proposed(first: torch.Tensor) -> None:
    """What is not finite is infinity: every rank will see it, because no maximum hides it."""
    torch.nan_to_num_(first, nan=torch.inf, posinf=torch.inf)


def add_agreed(payload: Payload, top: int, bucket: int, out: torch.Tensor, scale: float) -> None:
    """Add scale * level * agreed scale / top to `out`."""
    levels = replace(payload, codes=payload.values.view(torch.uint8))
    quantizers(out.device).add_levels(levels, 8, payload.first * (scale / top), bucket, out)
