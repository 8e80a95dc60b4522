"""What becomes of an exchange: its memory is committed when an optimizer steps, else undone with its gradients."""

import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist
from plan.options import keeps_all
from runtime import work_used as work
from runtime.cases import BIASED, DENSE, SPARSE, in_turn, name, of_scheme
from runtime.pool import Pool
from runtime.ranks import Ranks, add_up, among, each_rank, is_rank_0s
from runtime.work import costs_for
from runtime.work_guards import error_of
from runtime.work_used import RATE, Script, _Lines, halves, loss_on
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx
from ssfx.schemes import schemes

FEEDBACK = [scheme for scheme in SPARSE if scheme not in BIASED]


@pytest.mark.parametrize(("seed", "world"), [(0, 2), pytest.param(1, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", ["ddp", *FEEDBACK])
def test_what_is_applied_and_kept_is_what_was_stepped_with(ranks: Ranks, scheme: str, seed: int, world: int) -> None:
    options = of_scheme(scheme, world, density=0.1)
    if "sgd" in scheme:  # the default rank holds these small matrices whole
        options["compressor"] = f"{scheme}(rank=1)"
    reports = ranks.run(work.keeps_mass, world, options, seed)
    for violation, _, agree in reports:
        assert violation < 2e-5
        assert agree
    if scheme != "ddp" and not schemes[scheme].profiled:
        assert max(kept for _, kept, _ in reports) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 200))
def test_ten_random_scripts_keep_what_they_do_not_apply(ranks: Ranks, seed: int) -> None:
    options = [of_scheme("topk", 2, density=0.1), of_scheme("per_tensor", 2, density=0.1)][seed % 2]
    for reports in (ranks.run(work.keeps_mass, 2, options, 10 * seed + number) for number in range(10)):
        for violation, _, agree in reports:
            assert violation < 2e-5
            assert agree


@in_turn("scheme,world", [s for s in [*DENSE, *SPARSE] if keeps_all(s) is not None], (3, 2))
@each_rank()
def test_a_random_script_at_density_one_ends_where_ddp_does(group, rank, world, scheme):
    options = of_scheme(scheme, world, density=1.0)
    seed = 5
    ends = []
    for exchange in ("ssfx", "ddp"):
        model = halves()
        if exchange == "ssfx":
            given = {"costs": costs_for(world), **options}
            sync: Any = ssfx.attach(model, torch.optim.SGD(model.parameters(), RATE), process_group=group, **given)
            script = Script(model, sync, rank, seed)
        else:
            sync = wrapped = DistributedDataParallel(model, process_group=group, find_unused_parameters=True)
            script = Script(model, sync, rank, seed, forward=wrapped)
        for _ in range(12):
            script.turn_of_ddp()
        if exchange == "ssfx":
            sync.detach()
        ends.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    assert float((ends[0] - ends[1]).abs().max()) < 1e-5


@pytest.mark.parametrize("options", [of_scheme(s, 2, density=0.1) for s in ["ddp", *FEEDBACK]], ids=name)
@each_rank(2, by="ranks")
def test_parameters_that_are_unfrozen_later_are_exchanged_from_then_on(group, rank, world, options):
    """Half of the model is frozen at attach and trained later."""
    model = halves()
    model.a.requires_grad_(False)
    optimizer = torch.optim.SGD(model.b.parameters(), RATE)
    sync = ssfx.attach(model, optimizer, **among(group), **{"costs": costs_for(world), **options})
    script = Script(model, sync, rank, 0)
    script.optimizers = {"a": optimizer, "b": optimizer}
    for number in range(20):
        if number == 8:
            model.a.requires_grad_(True)
            optimizer.add_param_group({"params": list(model.a.parameters())})
        script.backward()
        before = {at: p.detach().clone() for at, p in model.named_parameters()}
        optimizer.step()
        for at, p in model.named_parameters():
            script.moved[at] += (before[at] - p.detach()) / RATE
            script.used[at] += script.window[at]
            script.window[at].zero_()
        optimizer.zero_grad()
    worst = 0.0
    for at, p in model.named_parameters():
        residual = sync.store.state_dict().get(at, {}).get("residual", torch.zeros_like(p))
        balance = script.used[at] - residual
        add_up(balance, group)
        worst = max(worst, float((balance - world * script.moved[at]).abs().max()) / (float(balance.abs().max()) + 1.0))
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    agree, tensors = is_rank_0s(mine, group), len(sync.plan.tensors)
    sync.detach()
    assert worst < 2e-5
    assert agree
    assert tensors == 8


@each_rank(2)
def test_an_optimizer_that_steps_inside_backward_is_refused(group, rank, world):
    """An optimizer is stepped by a hook that was there before attach."""
    model = halves()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    sync = ssfx.attach(model, optimizer, process_group=group)
    text = error_of(lambda: loss_on(model, rank, 0).backward())
    sync.detach()
    assert "inside the backward pass" in text


def test_undone_steps_are_said_at_the_first_and_the_tenth_with_the_reason(pool: Pool) -> None:
    (first, said), (last, reason) = pool.run(work.undone_steps, 2)
    assert first == last == 12
    assert [line.split(":")[0] for line in said] == [line.split(":")[0] for line in reason]
    assert [line.split("(")[1].split(" ")[0] for line in reason] == ["1", "10"]
    assert "another rank" in said[0]
    assert "in the gradient of" in reason[0]


@pytest.mark.parametrize("size", [1e5, 1e6])
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "topk", "compressor": "topk(value_dtype=float16)", "density": 0.5},
        {"scheme": "per_tensor", "compressor": "dgc(value_dtype=float16)", "density": 0.5},
        {"scheme": "per_tensor", "compressor": "randomk(value_dtype=float16)", "density": 0.5},
        {"scheme": "cltk", "compressor": "cltk(value_dtype=float16)", "density": 0.5},
        {"scheme": "ddp_fp16"},
    ],
    ids=name,
)
@each_rank(2)
def test_a_finite_gradient_beyond_16_bits_is_cut_counted_and_the_rest_kept(group, rank, world, options, size):
    heard = _Lines()
    logging.getLogger("ssfx").addHandler(heard)
    model = nn.Linear(4, 8, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
    first = 0.0
    for step in range(4):
        optimizer.zero_grad()
        (model.weight * -size).sum().backward()
        optimizer.step()
        if step == 0:
            first = float(model.weight.detach().abs().max())
    residual = sync.store.state_dict().get("weight", {}).get("residual", torch.zeros_like(model.weight))
    total = world * model.weight.detach().double()
    kept = -residual.double()
    dist.all_reduce(kept, group=group)
    skipped, cut = sync.skipped_steps, sync.stats()["cut_values"]
    sync.detach()
    logging.getLogger("ssfx").removeHandler(heard)
    share = float(((total + kept) / (4 * world * size)).mean())
    said = heard.lines
    assert skipped == 0
    assert first == pytest.approx(65440, rel=1e-3)
    assert cut > 0
    assert len([line for line in said if "were cut" in line]) == 1  # in every attach, not in every process
    if options["scheme"] == "ddp_fp16":  # it has no memory
        assert share < 0.7
        assert any("is lost" in line for line in said)
    else:
        assert share == pytest.approx(1, rel=1e-3)
        assert any("is sent in later steps" in line for line in said)


@pytest.mark.parametrize("options", [{}, {"scheme": "topk", "density": 1.0}], ids=["ddp", "topk"])
@each_rank(2, by="ranks")
def test_what_a_pass_did_not_reach_is_no_average_thrown_away(group, rank, world, options):
    """Layers with a loss and an optimizer each: every pass reaches one, and clears what the others have."""
    model = nn.ModuleList([nn.Linear(10, 10), nn.Linear(10, 10)])
    optimizers = [torch.optim.SGD(layer.parameters(), RATE) for layer in model]
    sync = ssfx.attach(model, optimizers, **among(group), **options)
    x = torch.full((4, 10), rank + 1.0)
    for _ in range(2):
        for layer, optimizer in zip(model, optimizers, strict=True):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
    assert sync.stats()["discarded_exchanges"] == 0
    model[0](x).sum().backward()
    optimizers[0].zero_grad()
    model[0](x).sum().backward()
    assert sync.stats()["discarded_exchanges"] == 1
    sync.detach()
