"""Buffers of rank 0 on all ranks after every exchange, so that running statistics of BatchNorm are alike, as with DDP.

torch DDP sends all buffers before a forward pass. Here those that changed go with the exchange, in which every rank
takes part, so that a rank may skip a batch or evaluate alone. What the next forward pass reads is the same.
"""

from __future__ import annotations

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.setup import broadcast_tensors

_Seen = tuple[int, int]


class Buffers:
    """The buffers that a model has at attach, by place: a module may put another tensor there."""

    def __init__(self, model: torch.nn.Module, comm: Comm) -> None:
        self._comm = comm
        places: dict[int, tuple[dict[str, torch.Tensor | None], str]] = {}
        for module in model.modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and buffer.numel():
                    places.setdefault(id(buffer), (module._buffers, key))
        self._places = list(places.values())
        self._seen = [_seen(held[key]) for held, key in self._places]

    def broadcast(self) -> None:
        """All ranks have rank 0's value of every buffer that changed on any rank; all of them call it."""
        if not self._places:
            return
        now = [_seen(held.get(key)) for held, key in self._places]
        changed = torch.tensor([float(a != b) for a, b in zip(now, self._seen, strict=True)], dtype=torch.float32)
        changed = changed.to(self._comm.device)
        anywhere = self._comm.all_reduce(changed, op="max").wait().tolist()
        here = [held.get(key) for (held, key), sent in zip(self._places, anywhere, strict=True) if sent]
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for buffer in here:
            if buffer is not None and buffer.is_contiguous():
                by_dtype.setdefault(buffer.dtype, []).append(buffer.detach())
            elif buffer is not None:
                broadcast_tensors([buffer], self._comm)
        for buffers in by_dtype.values():
            flat = torch.cat([buffer.reshape(-1) for buffer in buffers]).to(self._comm.device)
            self._comm.broadcast(flat.view(torch.uint8)).wait()
            if self._comm.rank != 0:
                parts = flat.split([buffer.numel() for buffer in buffers])
                torch._foreach_copy_(buffers, [part.view(b.shape) for part, b in zip(parts, buffers, strict=True)])
        self._seen = [_seen(held.get(key)) for held, key in self._places]


def _seen(buffer: torch.Tensor | None) -> _Seen:
    return (id(buffer), buffer._version) if buffer is not None else (0, 0)
