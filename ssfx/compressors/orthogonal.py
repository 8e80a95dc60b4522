"""Orthonormal bases of factors, and columns that come back to life. Source: D-26."""

from __future__ import annotations

import functools

from ssfx.core.lazy import torch


def basis(factor: torch.Tensor) -> torch.Tensor:
    """Return orthonormal columns that span those of `factor` (float32, no fewer rows than columns).

    Householder QR: also where columns are zero or dependent, so that one step without gradients leaves no dead factor.
    Ranks that hold the same bits get the same bits.
    """
    columns: torch.Tensor = torch.linalg.qr(factor).Q
    return columns


def revived(factor: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return `factor` with its all-zero columns replaced by those of `fresh`; does not wait for the device."""
    return torch.where(factor.any(0), factor, fresh)


def normal(key: int, numel: int, device: torch.device) -> torch.Tensor:
    """Return `numel` standard normal float32 numbers of a 64-bit key, the same on every rank and device."""
    return torch.randn(numel, dtype=torch.float32, generator=torch.Generator().manual_seed(key)).to(device)


@functools.lru_cache(maxsize=1 << 12)
def cached_normal(key: int, numel: int, device: torch.device) -> torch.Tensor:
    """As `normal`, drawn once per process: every step may need it for a column that died. Not to be changed."""
    return normal(key, numel, device)
