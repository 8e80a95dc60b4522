"""A model that is dropped without `detach`: nothing of it stays, on each rank as soon as Python collects it there."""

import gc
import os
import threading
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
import torch.distributed as dist
from processes import wait_until
from runtime.models import build, loss_of
from runtime.ranks import each_rank
from runtime.work_attach import same_on_all_ranks, sgd
from torch import nn
from torch.nn.modules import module as torch_module

import ssfx
from ssfx.core.errors import ConfigError

Options = dict[str, Any]


class WithItsOwn(nn.Sequential):
    """A model that has a `no_sync`, so that attach gives it none."""

    def no_sync(self) -> None:
        raise AssertionError("nobody calls it")


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, rank, step).backward()
    optimizer.step()


def _trained(rank: int, options: Options) -> tuple[bool, ref[nn.Module]]:
    """Attach, train and drop a model; return whether replicas were equal, and what says if it still exists."""
    model = build("mlp")
    optimizer = sgd(model.parameters(), 0.0)
    ssfx.attach(model, optimizer, **options)
    for step in range(3):
        _step(model, optimizer, rank, step)
    return same_on_all_ranks(dist.group.WORLD, model), ref(model)


def _held() -> tuple[int, int, int]:
    """Return how many descriptors and threads this process has, and how many hooks torch has for all modules."""
    hooks = len(torch_module._global_parameter_registration_hooks) + len(torch_module._global_module_registration_hooks)
    fds, tasks = (len(list(Path("/proc/self", name).iterdir())) for name in ("fd", "task"))
    return fds, tasks, hooks


DDP: Options = {}
EVERY_KIND: dict[str, Options] = {
    "ddp": DDP,
    "topk": {"scheme": "topk", "density": 0.1},
    "oktopk": {"scheme": "oktopk", "density": 0.1},
    "lr_scaled": {"scheme": "topk", "density": 0.1, "memory": "lr_scaled"},
    "ssfusion_oi": {"scheme": "ssfusion_oi", "density": 0.1, "profile_iters": 2},
    "auto": {"scheme": "auto"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_KIND)
@each_rank(3)
def test_a_model_that_is_dropped_keeps_no_thread_and_no_descriptor(group, rank, world, name):
    """What this process holds after each of six models; garbage is collected by another rank each time, then by all."""
    options = EVERY_KIND[name]
    gc.collect()
    gc.disable()
    held, equal, gone = [], [], []
    try:
        for turn in range(6):
            same, model = _trained(rank, options)
            equal.append(same)
            if turn % world != rank:
                gc.collect()
                gone.append(model() is None)
    finally:
        gc.enable()
    gc.collect()
    for _ in range(3):
        equal.append(_trained(rank, options)[0])
        gc.collect()
        wait_until(lambda: not any(one.name.startswith("ssfx-") for one in threading.enumerate()))
        dist.barrier()
        held.append(_held())
    report = {"equal": equal, "gone": gone, "held": held}
    assert all(report["equal"]), report
    assert all(report["gone"]), report
    assert len(set(report["held"])) == 1, report


@each_rank(3)
def test_the_model_alone_keeps_its_exchange(group, rank, world):
    """Whether replicas stay equal when a script keeps the model alone, and steps it with a new optimizer."""
    options = DDP
    model = WithItsOwn(*build("mlp").children())
    ssfx.attach(model, sgd(model.parameters(), 0.0), **options)
    gc.collect()
    equal = []
    optimizer = sgd(model.parameters(), 0.0)
    for step in range(3):
        _step(model, optimizer, rank, step)
        equal.append(same_on_all_ranks(dist.group.WORLD, model))
    assert all(equal)


@each_rank(3)
def test_a_forked_process_that_collects_an_exchange_leaves_it_to_its_parent(group, rank, world):
    """Whether the peers still count on this rank after a process that it forked has collected the exchange."""
    options = EVERY_KIND["oktopk"]
    model = build("mlp")
    optimizer = sgd(model.parameters(), 0.0)
    sync = ssfx.attach(model, optimizer, **options)
    _step(model, optimizer, rank, 0)
    child = os.fork()
    if not child:
        gone = ref(sync)
        del model, optimizer, sync
        gc.collect()
        os._exit(gone() is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    dist.barrier()
    missed = sync._peers._gone()
    _step(model, optimizer, rank, 1)
    sync.detach()
    assert missed is None


@each_rank(3)
def test_weights_that_outlive_what_was_attached_do_not_train_apart_in_silence(group, rank, world):
    """Nothing keeps list or handle, and another optimizer takes over; then an exchange of their own covers them."""
    model = WithItsOwn(*build("mlp").children())
    optimizer = sgd(model.parameters(), 0.0)
    ssfx.attach(nn.ModuleList([model]), optimizer)
    _step(model, optimizer, rank, 0)
    optimizer = sgd(model.parameters(), 0.0)
    gc.collect()
    with pytest.raises(ConfigError, match="the exchange of this weight is gone"):
        _step(model, optimizer, rank, 1)
    sync = ssfx.attach(model, optimizer)
    _step(model, optimizer, rank, 2)
    assert same_on_all_ranks(dist.group.WORLD, model)
    sync.detach()
