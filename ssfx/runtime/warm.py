"""Compile what a step will call, before the first step: on a machine that never did, it takes about 20 seconds."""

from __future__ import annotations

import torch

from ssfx.compressors import Compressor, Payload
from ssfx.compressors.batch import Batch, Part
from ssfx.memories import Memory

_SHAPE = (8, 8)


def warm_up(compressor: Compressor, memory: Memory, device: torch.device, world_size: int) -> None:
    """One tensor of zeros has been compressed and decoded, so that every kernel is compiled."""
    numel = _SHAPE[0] * _SHAPE[1]
    layout = compressor.layout_of([_SHAPE], 0.5)
    part = Part(0, numel, layout, 0.5, pieces=((0, numel),), shapes=(_SHAPE,))
    new = {name: torch.zeros(numel, device=device) for name in memory.buffers}
    old = {name: torch.zeros(numel, device=device) for name in memory.buffers} if memory.stateful else {}
    state = {name: torch.zeros(shape, device=device) for name, shape in compressor.state_shapes([_SHAPE]).items()}
    payload = Payload.allocate(layout, device)
    batch = Batch((part,), payload, new, old, memory, world_size=world_size, states=[state])
    batch.grads = [torch.zeros(numel, device=device)]
    if compressor.rounds == 2:
        batch.propose(compressor)
    batch.compress(compressor)
    compressor.decompress_add(payload, torch.zeros(numel, device=device), batch.context(part))
