"""Shared scales: ranks agree on the largest of their scales first, so that levels add up as integers of one byte.

Source: D-13, D-25.
"""

from __future__ import annotations

from dataclasses import replace

from ssfx.compressors.base import Payload
from ssfx.compressors.kernels import quantizers
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch

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
