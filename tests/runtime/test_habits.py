"""Copies of an attached model exchange nothing; what scripts do to DDP's wrapper works, or is said to do nothing."""

import copy
import io
from dataclasses import fields
from typing import Any

import pytest
import torch
from runtime.models import build, loss_of
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.test_guards import said
from runtime.work import costs_for, train
from runtime.work_attach import SPARSE, attach_mlp, distance, same_on_all_ranks, sgd
from runtime.work_guards import error_of, heard
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import ssfx
from ssfx.runtime.checks import ARGUMENTS
from ssfx.schemes import schemes

STEPS = 8


def _saved_and_read(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


COPIES = {"deepcopy": copy.deepcopy, "averaged": AveragedModel, "saved": _saved_and_read}


def argument(group: Any, rank: int, world: int, name: str) -> str:
    model = build("mlp")
    return error_of(lambda: ssfx.attach(model, sgd(model.parameters()), process_group=group, **{name: True}))


class _WithNoSync(nn.Linear):
    def no_sync(self) -> str:
        return "its own"


OPTIONS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "topk": SPARSE,
    "observes": {"scheme": "ssfusion_oi", "density": 0.05},
    "watches": {"scheme": "auto"},
}


@pytest.mark.parametrize("how", COPIES)
@each_rank(2)
def test_a_copy_of_a_model_that_keeps_its_handle_has_none(group, rank, world, how):
    model = build("mlp")
    model.sync = ssfx.attach(model, sgd(model.parameters(), 0.0), process_group=group)
    assert COPIES[how](model).get_submodule("module" if how == "averaged" else "").sync is None
    model.sync.detach()


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@each_rank(2)
def test_a_copy_exchanges_nothing(group, rank, world, options, how):
    """Copy the model before and after every step; train the copies on rank 0 alone, which must not exchange."""
    model, optimizer, sync = attach_mlp(group, costs=costs_for(world), **options)
    report = {"same names": True, "equal": True}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        other = COPIES[how](model)
        bare = other.module if how == "averaged" else other
        report["same names"] &= list(bare.state_dict()) == list(model.state_dict())
        report["equal"] &= distance(model, bare) == 0.0
        if rank == 0:
            with bare.no_sync():
                loss_of(bare, rank, step).backward()
            loss_of(bare, rank, step).backward()
        loss.backward()
        optimizer.step()
    report["exchanges"] = sync.step == STEPS
    report["ranks agree"] = same_on_all_ranks(group, model)
    sync.detach()
    report["nothing stays"] = not hasattr(model, "no_sync") and not model._forward_hooks
    assert all(report.values()), report


@each_rank(2)
def test_a_copy_may_train_inside_ddp(group, rank, world):
    """Train a copy of an attached model with torch DDP."""
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
    other = DistributedDataParallel(copy.deepcopy(model), process_group=group)
    optimizer = sgd(other.parameters())
    loss_of(other, rank, 0).backward()
    optimizer.step()
    sync.detach()
    assert same_on_all_ranks(group, other)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SPARSE | {"density": 1.0}], ids=["ddp", "topk-1"])
@pytest.mark.parametrize("habit", ["attribute", "no_sync", "compiled", "compiled later"])
@each_rank(2)
def test_accumulation_as_with_ddp(group, rank, world, habit, options):
    """Accumulate four micro-steps as DDP's users do, beside DDP itself."""
    model, twin = build("mlp"), build("mlp")
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    trained: Any = torch.compile(model, backend="aot_eager") if habit.startswith("compiled") else model
    sync = ssfx.attach(trained if habit != "compiled later" else model, mine, process_group=group, **options)
    ddp = DistributedDataParallel(twin, process_group=group)
    with heard() as lines:
        for step in range(5):
            for micro in range(4):
                for net in (trained, ddp):
                    if habit == "no_sync" and micro < 3:
                        with net.no_sync():
                            (loss_of(net, rank, 4 * step + micro) / 4).backward()
                    else:
                        if habit != "no_sync":
                            net.require_backward_grad_sync = micro == 3
                        (loss_of(net, rank, 4 * step + micro) / 4).backward()
            for optimizer in (mine, theirs):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    steps = sync.step
    sync.detach()
    report = {"exchanges": steps, "distance": distance(model, twin), "lines": lines}
    assert report["exchanges"] == 5
    assert report["distance"] < 1e-5
    assert report["lines"] == []


@pytest.mark.parametrize("name", ["require_forward_param_sync", "find_unused_parameters", "broadcast_buffers"])
@each_rank(2)
def test_an_attribute_of_ddp_without_effect_is_said_once(group, rank, world, name):
    """Set an attribute of DDP on the bare model."""
    model, optimizer, sync = attach_mlp(group)
    with heard() as lines:
        setattr(model, name, False)
        train(model, optimizer, rank, range(3))
    names = list(model.state_dict())
    sync.detach()
    assert len(lines) == 1
    said(lines[0], name, "DistributedDataParallel", "attach.md")
    assert names == list(build("mlp").state_dict())


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_ddp_is_told_what_holds_instead(pool: Pool, name: str) -> None:
    for text in pool.run(argument, 2, name):
        said(text, name, "DistributedDataParallel", ARGUMENTS[name])
    assert not any(name in {f.name for f in fields(scheme.defaults)} for scheme in schemes)


@each_rank(2)
def test_nothing_of_the_model_is_hidden(group, rank, world):
    model = _WithNoSync(3, 3)
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
    said = [model.no_sync(), hasattr(model, "module")]
    sync.detach()
    assert [*said, model.no_sync()] == ["its own", False, "its own"]
