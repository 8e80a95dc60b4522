"""Dense at first: the density falls in stages while it warms up, or everything is sent dense for some steps.

Nothing is lost, and a resumed run goes on in its stage.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from docs.markdown import python_blocks
from runtime.habit import Habits, Rank, far, sgd
from runtime.models import build
from runtime.pool import Pools
from runtime.ranks import ddp
from runtime.test_resume import resumes_exactly

from ssfx.core.errors import ConfigError
from ssfx.runtime.planner import given_at
from ssfx.schemes import schemes

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()

WARM = {"scheme": "per_tensor", "compressor": "topk", "density": 0.001, "density_warmup": 8}
OPTIONS = {key: value for key, value in WARM.items() if key != "scheme"}


def test_stages_are_those_of_the_paper() -> None:
    options = schemes["per_tensor"].online(OPTIONS)
    stages = [given_at(step, OPTIONS, options)["density"] for step in range(9)]
    assert stages[::2] == pytest.approx([0.251, 0.0631, 0.0158, 0.00398, 0.001], rel=0.01)
    assert stages[::2][:4] == stages[1::2]
    assert given_at(8, OPTIONS, options) is OPTIONS


@habits("DGC's warm-up of the density", WARM | {"density": 0.05})
def the_density_falls_as_planned_and_mass_is_conserved(one: Rank) -> None:
    """What is sent and what stays behind, over all ranks, is what there was: gradients and what had stayed before."""
    online = schemes["per_tensor"].online(OPTIONS | {"density": 0.05})
    model, optimizer, sync = one.mlp(0.0)
    for step in range(10):
        (density,) = {segment.density for _, lane in sync.plan.lanes() for segment in lane.segments}
        local = build("mlp")
        local.load_state_dict(model.state_dict())
        one.loss(local, step).backward()
        before = sync.store.state_dict()
        one.train(model, optimizer, [step])
        after = sync.store.state_dict()
        assert density == given_at(step, one.options, online)["density"]
        for (name, p), own in zip(model.named_parameters(), local.parameters(), strict=True):
            left = [state.get(name, {}).get("residual", torch.zeros_like(p)) for state in (before, after)]
            sent = one.sum(own.grad + left[0].view_as(p) - left[1].view_as(p))
            assert float((sent / one.world - p.grad).abs().max()) < 1e-6


@pytest.mark.parametrize("cut", [3, 4])
def test_a_run_cut_in_the_warm_up_goes_on_in_it(pool: Pools, cut: int) -> None:
    assert all(pool.run(resumes_exactly, 2, WARM | {"density": 0.05}, cut))


@habits("dense_steps: warm-ups of 1-bit Adam and PowerSGD's hook", scheme=["per_tensor", "powersgd", "mergecomp"])
def the_first_steps_are_those_of_ddp(one: Rank, scheme: str) -> None:
    """Of a scheme that profiles, profiling begins when they are over."""
    options = {"scheme": scheme, "dense_steps": 3} | ({} if scheme == "powersgd" else {"compressor": "topk"})
    last_dense = 3 + schemes[scheme].online({}).observed_steps * schemes[scheme].profiled
    (model, optimizer, sync), twin = one.mlp(0.0, **options), build("mlp")
    other, theirs = ddp(twin, one.group), sgd(twin, 0.0)
    for step in range(last_dense + 2):
        dense = step < last_dense
        assert sync.plan.scheme == ("ddp" if dense else scheme)
        one.train(model, optimizer, [step])
        one.train(other, theirs, [step])
        assert far(model, twin) < 1e-6 if dense else far(model, twin) > 1e-6


@pytest.mark.parametrize("cut", [2, 3])
def test_a_run_cut_in_the_dense_steps_goes_on_in_them(pool: Pools, cut: int) -> None:
    options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "dense_steps": 3}
    assert all(pool.run(resumes_exactly, 2, options, cut))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dense_steps": -1}, "must not be negative"),
        ({"density_warmup": -1}, "must not be negative"),
        ({"compressor": "fp16", "density_warmup": 4}, "no effect"),
    ],
)
def test_a_warm_up_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        schemes["per_tensor"].options(options)


def test_the_recipe_of_the_page_freezes_the_second_moment() -> None:
    """Its value without bias stays, and steps are those of the first moment over its root."""
    page = Path(__file__).parents[2] / "docs" / "schemes.md"
    (recipe,) = (block for block in python_blocks(page) if block.startswith("# freeze\n"))
    names: dict[str, Any] = {}
    exec(recipe, names)
    weight = torch.nn.Parameter(torch.zeros(50))
    optimizer = torch.optim.AdamW([weight], lr=0.1, betas=(0.9, 0.95), weight_decay=0.0)
    drawn = torch.Generator().manual_seed(0)
    for _ in range(40):
        weight.grad = torch.randn(50, generator=drawn)
        optimizer.step()
    state = optimizer.state[weight]
    unbiased = state["exp_avg_sq"] / (1 - 0.95**40)
    names["freeze"](optimizer)
    for step in range(40):
        weight.grad, first, before = torch.zeros(50), state["exp_avg"].clone(), weight.detach().clone()
        weight.grad[step] = 100.0  # as what a selection sends
        first += 0.1 * (weight.grad - first)
        optimizer.step()
        torch.testing.assert_close(state["exp_avg_sq"], unbiased, rtol=1e-3, atol=0)
        torch.testing.assert_close(before - weight.detach(), 0.1 * first / unbiased.sqrt(), rtol=1e-3, atol=1e-6)
