"""Exact averages, for gradients that are read and not stepped with: dense, without compressor or memory."""

from collections.abc import Iterable

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.hooks import without_graph


@torch.no_grad()
def average_exactly(params: Iterable[torch.nn.Parameter], comm: Comm) -> None:
    """`.grad` of each parameter is the average over ranks; one that a rank lacks counts as zeros there."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for param in params:
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        elif param.grad.requires_grad:
            param.grad = without_graph(param, param.grad)
        by_dtype.setdefault(param.grad.dtype, []).append(param.grad)
    for grads in by_dtype.values():
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        comm.all_reduce(flat).wait()
        parts = flat.div_(comm.world_size).split([grad.numel() for grad in grads])
        torch._foreach_copy_(grads, [part.view(g.shape) for part, g in zip(parts, grads, strict=True)])
