"""The memory of an attached model: plain data, DGC's corrections of momentum, a resume, another learning rate."""

import io
from typing import Any

import pytest
import torch
from runtime.habit import DGC, TOPK, Habits, Rank, far
from runtime.models import build
from runtime.ranks import ddp

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


@habits("torch.load(weights_only=True)", {}, TOPK, DGC)
def the_state_is_plain_data(one: Rank) -> None:
    model, optimizer, sync = one.mlp(0.0)
    for steps in (range(1), range(1, 7)):
        one.train(model, optimizer, steps)
        file, state = io.BytesIO(), sync.state_dict()
        torch.save(state, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert {**loaded, "memory": 0} == {**state, "memory": 0}
        assert _equal(loaded["memory"], state["memory"])
        sync.load_state_dict(loaded)


def _equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether two memories are the same."""
    keys = [(name, key) for name, state in a.items() for key in state]
    return keys == [(name, key) for name, state in b.items() for key in state] and all(
        torch.equal(a[name][key], b[name][key]) for name, key in keys
    )


@habits("DGC, section 3.2", world=(2, 3))
def dgc_memory_corrects_momentum(one: Rank) -> None:
    spec = "dgc(momentum=0.9)"
    # At density 1 every tensor travels dense, so the memory's momentum is applied to the averages.
    dense, optimizer, _ = one.mlp(0.0, scheme="fused_all", compressor="topk", density=1.0, memory=spec)
    twin = build("mlp")
    one.train(dense, optimizer, range(4))
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    one.train(ddp(twin, one.group), theirs, range(4))
    assert far(dense, twin) < 1e-5

    model, optimizer, sync = one.mlp(0.0, memory=spec, **TOPK)
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(4):
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        one.loss(local, step).backward()
        before = sync.store.state_dict()
        one.train(model, optimizer, [step])
        after = sync.store.state_dict()
        for (name, p), own in zip(model.named_parameters(), local.parameters(), strict=True):
            momentum[name] = 0.9 * momentum[name] + own.grad
            old = before.get(name, {}).get("velocity", torch.zeros_like(p))
            sent = old + momentum[name] - after[name]["velocity"]
            momentum[name][sent != 0] = 0
            assert float((one.sum(sent) / one.world - p.grad).abs().max()) < 1e-5
            assert float((after[name]["momentum"] - momentum[name]).abs().max()) < 1e-5


@habits("a run that is continued", DGC, world=(2, 3))
def dgc_memory_from_profiling_to_resume(one: Rank) -> None:
    """Train through the dense plan, the profiled one and a resume."""
    model, optimizer, sync = one.mlp(0.0)
    one.train(model, optimizer, range(8))
    kept, weights = sync.state_dict(), {name: value.clone() for name, value in model.state_dict().items()}
    one.train(model, optimizer, range(8, 12))
    again, again_optimizer, again_sync = one.mlp(0.0)
    again.load_state_dict(weights)
    again_sync.load_state_dict(kept)
    one.train(again, again_optimizer, range(8, 12))
    dense = [n for _, lane in sync.plan.lanes() for s in lane.segments if s.dense for n in s.tensors]
    assert 0 < len(dense) < len(sync.plan.tensors)
    assert all(bool(sync.store.get(n, "momentum").any()) for n in dense)
    assert far(model, again) == 0.0
    assert _equal(sync.store.state_dict(), again_sync.store.state_dict())


RATES = {"residual": (1.0, 0.0), "lr_scaled": (10.0, 0.01)}


@habits("StepLR", TOPK, memory=RATES)
def a_carried_residual_keeps_the_learning_rate_it_was_computed_under(one: Rank, memory: str) -> None:
    """Drop the rate tenfold after one step and run a step without gradients."""
    model, optimizer, sync = one.mlp(0.0, memory=memory)
    one.train(model, optimizer, [0])
    carried = {name: sync.store.get(name, "residual").clone() for name, _ in model.named_parameters()}
    optimizer.param_groups[0]["lr"] /= 10
    one.train(model, optimizer, [1], lambda step: 0 * one.loss(model, step))  # which commits what was kept back
    before = after = 0.0
    for name, p in model.named_parameters():
        before += float(one.sum(carried[name].sum()))
        after += float(one.sum(sync.store.get(name, "residual").sum()) + one.world * p.grad.sum())
    state, (factor, rate) = sync.state_dict(), RATES[memory]
    assert abs(before) > 1e-3
    assert after / before == pytest.approx(factor, rel=1e-4)
    assert max(state["rates"]["rates"].values() if state["rates"] else [], default=0.0) == pytest.approx(rate)
