"""Compile what a step will call, before the first step: on a machine that never did, it takes about 20 seconds."""

from __future__ import annotations

import torch

from ssfx.compressors import Compressor
from ssfx.compressors.blank import blank_batch, run
from ssfx.memories import Memory

_SHAPE = (8, 8)


def warm_up(compressor: Compressor, memory: Memory, device: torch.device, world_size: int) -> None:
    """One tensor of zeros has been compressed and decoded, so that every kernel is compiled."""
    batch = blank_batch(compressor, [[_SHAPE]], 0.5, memory, device)
    batch.world_size = world_size
    batch.grads = [torch.zeros(64, device=device)]
    run(batch, compressor)
    compressor.decompress_add(batch.payload, torch.zeros(64, device=device), batch.context(batch.parts[0]))
