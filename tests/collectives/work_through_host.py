"""What the pool's ranks run with messages that go through the host, as those of a GPU do where gloo carries them."""

from typing import Any

import pytest
import torch
from collectives import work_hierarchical, work_reducers

from ssfx.collectives.torch_comm import TorchComm
from ssfx.core import accelerator


def steps(group: Any, rank: int, world: int, spec: str, grads: list[list[list[float]]], kept: int) -> Any:
    """Do `work_reducers.steps` on ranks whose tensors the host cannot read."""
    return _unread(work_reducers.steps, group, rank, world, spec, grads, kept)


def summed(group: Any, rank: int, world: int, spec: str, data: list[list[float]], dtype: str) -> Any:
    """Do `work_hierarchical.summed` on such ranks."""
    return _unread(work_hierarchical.summed, group, rank, world, spec, data, dtype)


def _unread(work: Any, group: Any, *args: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerator, "host_reads", lambda device: False)
        return work(group, *args)


def one_swap(group: Any, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Return what the other rank sent, before and after the wait, and whether gloo got the tensor to fill itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerator, "host_reads", lambda device: False)
        comm = TorchComm(group)
        posted: list[int] = []
        operation = comm._dist.P2POp

        def noted(op: Any, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
            posted.append(tensor.data_ptr())
            return operation(op, tensor, *args, **options)

        patch.setattr(comm._dist, "P2POp", noted)
        own, received = torch.full((5,), float(rank)), torch.full((5,), -1.0)
        pending = comm.swap({(rank - 1) % world: own}, {(rank + 1) % world: received})
        before = received.clone()
        pending.wait()
        return before, received, received.data_ptr() in posted
