"""Buffers of rank 0 on all ranks after every exchange, so that running statistics of BatchNorm are alike, as with DDP.

torch DDP sends all buffers before a forward pass. Here those that may have changed go with the exchange, in which every
rank takes part, so that a rank may skip a batch or evaluate alone. What the next forward pass reads is the same.
"""

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.setup import broadcast_tensors

_SMALL = 1 << 14


class Buffers:
    """The buffers that a model has at attach, by place: a module may put another tensor there.

    Small ones go in every step: torch's BatchNorm changes its own without a trace. Large ones, such as masks of
    attention, go where their version count says on any rank that they changed.
    """

    def __init__(self, model: torch.nn.Module, comm: Comm) -> None:
        self._comm = comm
        places: dict[int, tuple[dict[str, torch.Tensor | None], str]] = {}
        for module in model.modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and buffer.numel():
                    places.setdefault(id(buffer), (module._buffers, key))
        self._small = [(held, key) for held, key in places.values() if _numel(held[key]) <= _SMALL]
        self._large = [(held, key) for held, key in places.values() if _numel(held[key]) > _SMALL]
        self._seen = [_seen(held[key]) for held, key in self._large]

    def broadcast(self) -> None:
        """All ranks have rank 0's value of every buffer that may have changed; all of them call it."""
        here = [held.get(key) for held, key in self._small]
        if self._large:
            now = [_seen(held.get(key)) for held, key in self._large]
            flags = [float(a is not b or v != w) for (a, v), (b, w) in zip(now, self._seen, strict=True)]
            changed = torch.tensor(flags, dtype=torch.float32, device=self._comm.device)
            anywhere = self._comm.all_reduce(changed, op="max").wait().tolist()
            here += [held.get(key) for (held, key), sent in zip(self._large, anywhere, strict=True) if sent]
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
        self._seen = [_seen(held.get(key)) for held, key in self._large]


def _numel(buffer: torch.Tensor | None) -> int:
    return buffer.numel() if buffer is not None else 0


def _seen(buffer: torch.Tensor | None) -> tuple[torch.Tensor | None, int]:
    return buffer, buffer._version if buffer is not None else 0
