"""Long CPU tensors in cache-sized pieces: mixed-dtype operators make temporaries, which then stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

from ssfx.core.lazy import torch

BLOCK = 1 << 17  # elements; measured best between 2^16 and 2^18 for 16-bit casts


def blocks(x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield matching views of two flat tensors of one length: pieces on the CPU, everything at once elsewhere."""
    if x.numel() <= BLOCK or x.device.type != "cpu":
        yield x, y
    else:
        yield from zip(torch.split(x, BLOCK), torch.split(y, BLOCK), strict=True)
