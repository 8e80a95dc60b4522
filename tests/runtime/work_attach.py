"""What ranks of the pool ask of a model, and a plain optimizer."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def sgd(params: Any, momentum: float = 0.9) -> torch.optim.SGD:
    """Return plain SGD."""
    return torch.optim.SGD(params, lr=0.1, momentum=momentum)


def same_on_all_ranks(group: Any, model: nn.Module) -> bool:
    """Return whether all ranks have the weights of rank 0."""
    same = True
    for p in model.parameters():
        first = p.detach().clone()
        dist.broadcast(first, 0, group=group)
        same &= torch.equal(first, p)
    return same
