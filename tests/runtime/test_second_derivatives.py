"""An average has no graph: what would differentiate it is an error, where the graph of one rank would be wrong."""

import pytest
import torch
from runtime.ranks import among, each_rank, is_rank_0s
from runtime.work_guards import error_of
from torch import nn

import ssfx


@pytest.mark.parametrize("density", [None, 0.1, 1.0])
@pytest.mark.filterwarnings("ignore:Using backward")
@each_rank(2, by="ranks")
def test_an_averaged_gradient_is_stepped_with_and_not_differentiated(group, rank, world, density):
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    sync = ssfx.attach(
        model, optimizer, **among(group), **({"scheme": "per_tensor", "density": density} if density else {})
    )
    for step in range(3):
        optimizer.zero_grad(set_to_none=step == 1)
        model(torch.randn(4, 6)).square().mean().backward(create_graph=True)
        grads = [p.grad for p in model.parameters()]
        assert all(grad is not None and grad.requires_grad for grad in grads)
        for differentiated in (
            lambda grads=grads: torch.autograd.grad(grads, [*model.parameters()], [torch.ones_like(g) for g in grads]),
            lambda grads=grads: sum(grad.square().sum() for grad in grads).backward(),
        ):
            text = error_of(differentiated)
            assert "averaged over ranks cannot be differentiated" in text
            assert "\n" not in text
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert is_rank_0s(model[0].weight, group)
    with sync.no_sync():  # this rank's own gradient, and its own graph
        model.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward(create_graph=True)
    first = model[0].weight.grad
    assert torch.autograd.grad(first.sum(), model[0].weight)[0].any()
    sync.detach()
