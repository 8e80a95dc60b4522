"""The memory of an attached model: plain data, DGC's corrections of momentum, a resume, another learning rate."""

import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.models import build, loss_of
from runtime.ranks import each_rank
from runtime.work import costs_for, train
from runtime.work_attach import (
    DGC,
    SPARSE,
    STEPS,
    _step,
    attach_mlp,
    distance,
    same_on_all_ranks,
    sgd,
)
from torch.nn.parallel import DistributedDataParallel

import ssfx


@pytest.mark.parametrize("options", [{}, SPARSE, DGC], ids=["ddp", "topk", "dgc memory"])
@each_rank(2)
def test_the_state_is_plain_data(group, rank, world, options):
    model, optimizer, sync = attach_mlp(group, 0.0, **{"costs": costs_for(world), **options})
    good = []
    for step in range(7):
        _step(model, optimizer, rank, step, "mlp", "")
        if step in (0, 6):
            file, state = io.BytesIO(), sync.state_dict()
            torch.save(state, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=True)
            good.append(
                {k: v for k, v in loaded.items() if k != "memory"} == {k: v for k, v in state.items() if k != "memory"}
            )
            for name, buffers in state["memory"].items():
                good += [torch.equal(value, loaded["memory"][name][buffer]) for buffer, value in buffers.items()]
            sync.load_state_dict(loaded)
    sync.detach()
    assert good
    assert all(good)


@pytest.mark.parametrize("world", [2, 3])
@each_rank()
def test_dgc_memory_corrects_momentum(group, rank, world):
    spec = "dgc(momentum=0.9)"
    dense, twin = build("mlp"), build("mlp")
    optimizer = sgd(dense.parameters(), 0.0)
    # At density 1 every tensor travels dense, so the memory's momentum is applied to the averages.
    sync = ssfx.attach(
        dense, optimizer, process_group=group, scheme="fused_all", compressor="topk", density=1.0, memory=spec
    )
    ddp = DistributedDataParallel(twin, process_group=group)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        _step(dense, optimizer, rank, step, "mlp", "")
        _step(ddp, theirs, rank, step, "mlp", "")
    sync.detach()

    model, optimizer, sync = attach_mlp(group, 0.0, memory=spec, **SPARSE)
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    worst = 0.0
    for step in range(STEPS):
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        loss_of(local, rank, step).backward()
        before = sync.store.state_dict()
        _step(model, optimizer, rank, step, "mlp", "")
        after = sync.store.state_dict()
        for name, p in model.named_parameters():
            g = dict(local.named_parameters())[name].grad
            momentum[name] = 0.9 * momentum[name] + g
            old = before.get(name, {}).get("velocity", torch.zeros_like(p))
            sent = old + momentum[name] - after[name]["velocity"]
            momentum[name][sent != 0] = 0
            dist.all_reduce(sent, group=group)
            worst = max(worst, float((sent / world - p.grad).abs().max()))
            worst = max(worst, float((after[name]["momentum"] - momentum[name]).abs().max()))
    sync.detach()
    assert distance(dense, twin) < 1e-5
    assert worst < 1e-5


@pytest.mark.parametrize("world", [2, 3])
@each_rank()
def test_dgc_memory_from_profiling_to_resume(group, rank, world):
    """Train through the dense plan, the profiled one and a resume."""

    def start() -> tuple[Any, Any, Any]:
        model = build("mlp")
        optimizer = sgd(model.parameters(), 0.0)
        return model, optimizer, ssfx.attach(model, optimizer, process_group=group, costs=costs_for(world), **DGC)

    model, optimizer, sync = start()
    train(model, optimizer, rank, range(8))
    kept, weights = sync.state_dict(), model.state_dict()
    weights = {name: value.clone() for name, value in weights.items()}
    train(model, optimizer, rank, range(8, 12))
    again, again_optimizer, again_sync = start()
    again.load_state_dict(weights)
    again_sync.load_state_dict(kept)
    train(again, again_optimizer, rank, range(8, 12))
    dense = [n for _, lane in sync.plan.lanes() for s in lane.segments if s.dense for n in s.tensors]
    report = {
        "some dense, some not": 0 < len(dense) < len(sync.plan.tensors),
        "dense ones have momentum": all(bool(sync.store.get(n, "momentum").any()) for n in dense),
        "same": same_on_all_ranks(group, model),
        "resumed": all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)),
        "state": all(
            torch.equal(v, again_sync.store.state_dict()[n][b])
            for n, state in sync.store.state_dict().items()
            for b, v in state.items()
        ),
    }
    sync.detach()
    again_sync.detach()
    assert all(report.values()), report


@pytest.mark.parametrize(("memory", "factor", "rate"), [("residual", 1.0, 0.0), ("lr_scaled", 10.0, 0.01)])
@each_rank(2)
def test_a_carried_residual_keeps_the_learning_rate_it_was_computed_under(group, rank, world, memory, factor, rate):
    """Drop the rate tenfold after one step and run a step without gradients."""
    model, optimizer, sync = attach_mlp(group, 0.0, memory=memory, **SPARSE)
    optimizer.zero_grad()
    loss_of(model, rank, 0).backward()
    optimizer.step()
    carried = {name: sync.store.get(name, "residual").clone() for name, _ in model.named_parameters()}
    optimizer.param_groups[0]["lr"] /= 10
    optimizer.zero_grad()
    (0 * loss_of(model, rank, 1)).backward()
    optimizer.step()  # which commits what was kept back
    before, after = torch.zeros(()), torch.zeros(())
    for name, param in model.named_parameters():
        kept = sync.store.get(name, "residual")
        total = torch.stack([carried[name].sum(), kept.sum()])
        dist.all_reduce(total, group=group)
        before += total[0]
        after += total[1] + world * param.grad.sum()
    state = sync.state_dict()
    sync.detach()
    rates = state["rates"]["rates"].values() if state["rates"] else []
    report = {"factor": float(after / before), "carried": float(before.abs()), "rate": max(rates, default=0.0)}
    assert report["carried"] > 1e-3
    assert report["factor"] == pytest.approx(factor, rel=1e-4)
    assert report["rate"] == pytest.approx(rate)
