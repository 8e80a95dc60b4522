"""What `ssfx.attach` promises any training script, whatever its habits: DDP's results, plain errors, a clean exit."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import HANG_S, Started
from runtime import work_attach as work
from runtime.models import batch, build, loss_of, parameters
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work import costs_for, train
from runtime.work_attach import (
    SPARSE,
    STEPS,
    Conv,
    Options,
    _WithEmpty,
    _Wrapped,
    attach_mlp,
    distance,
    same_on_all_ranks,
    sgd,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ssfx

TOPK: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.05}
EVERYTHING: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 1.0}
HABITS = ["", "autocast", "clip", "set_to_none=False", "never zeroed", "adam", "groups"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, EVERYTHING, {"scheme": "wfbp"}], ids=["ddp", "topk-1", "wfbp"])
@pytest.mark.parametrize("habit", HABITS)
def test_any_habit_gives_what_ddp_gives(pool: Pool, habit: str, options: Options) -> None:
    # Adam divides by a gradient that may be rounding noise itself, so only its gradients are compared.
    for gradients, parameters_ in pool.run(work.next_to_ddp, 2, habit, "mlp", options):
        assert habit == "adam" or gradients < 1e-4
        assert parameters_ < (1e-2 if habit == "adam" else 1e-5)


def test_tied_and_frozen_parameters_are_like_ddp(pool: Pool) -> None:
    for gradients, parameters_ in pool.run(work.next_to_ddp, 2, "", "tied", {}):
        assert gradients < 1e-4
        assert parameters_ < 1e-6


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["ddp", "topk-1"])
@each_rank(2)
def test_strided_parameters_and_buffers(group, rank, world, options):
    models = []
    for _ in range(2):
        torch.manual_seed(rank)  # attaching makes them equal, as DDP does
        models.append(Conv().to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    model, twin = models
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group, **options)
    ddp = DistributedDataParallel(twin, process_group=group)
    strides = []
    for step in range(STEPS):
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(10 * rank + step))
        x = x.to(memory_format=torch.channels_last)
        for net, optimizer in ((model, mine), (ddp, theirs)):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        strides.append(model.conv.weight.grad.stride() == model.conv.weight.stride())
    sync.detach()
    assert distance(model, twin) < 1e-5
    assert all(strides)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
@each_rank(2)
def test_a_compiled_model_trains_like_an_eager_one(group, rank, world, options):
    eager, inner = build("mlp"), build("mlp")
    model = torch.compile(inner, backend="aot_eager")
    mine, theirs = sgd(model.parameters()), sgd(eager.parameters())
    given = {"costs": costs_for(world), **options}
    sync = ssfx.attach(model, mine, process_group=group, **given)
    twin = ssfx.attach(eager, theirs, process_group=group, **given)
    for step in range(STEPS):
        for net, optimizer in ((model, mine), (eager, theirs)):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            optimizer.step()
    names = [sorted(spec.name for spec in s.plan.tensors) for s in (sync, twin)]
    sync.detach()
    twin.detach()
    torch._dynamo.reset()
    assert distance(inner, eager) < 1e-5
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("options", [{}, TOPK, work.DGC | {"memory": None}], ids=["ddp", "topk", "ssfusion"])
@each_rank()
def test_bf16_parameters_keep_a_float32_residual(group, rank, world, options):
    model = build("mlp").to(torch.bfloat16)
    optimizer = sgd(model.parameters())
    sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
    worst, dtypes = 0.0, set()
    for step in range(8):
        local = build("mlp").to(torch.bfloat16)
        local.load_state_dict(model.state_dict())
        x, y = batch(rank, step)
        nn.functional.cross_entropy(local(x.bfloat16()), y).backward()
        before = sync.store.state_dict()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        dtypes |= {str(kept.dtype) for state in after.values() for kept in state.values() if kept.is_floating_point()}
        own = dict(local.named_parameters())
        for name, p in model.named_parameters():
            zero = torch.zeros(p.shape)
            old = before.get(name, {}).get("residual", zero)
            new = after.get(name, {}).get("residual", zero)
            mass = own[name].grad.float() + old - new
            dist.all_reduce(mass, group=group)
            worst = max(worst, float((mass - world * p.grad.float()).abs().max() / (mass.abs().max() + 1e-12)))
    same = same_on_all_ranks(group, model)
    sync.detach()
    assert worst < 2**-6  # shares, sums and the average are rounded to 8 bits each
    assert ",".join(sorted(dtypes)) == ("torch.float32" if options else "")
    assert same


@each_rank(2)
def test_float64_parameters_are_exchanged_in_full_precision(group, rank, world):
    model, twin = build("mlp").double(), build("mlp").double()
    mine, theirs = sgd(model.parameters()), sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group)
    ddp = DistributedDataParallel(twin, process_group=group)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for net, optimizer in ((model, mine), (ddp, theirs)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x.double()), y).backward()
            optimizer.step()
    sync.detach()
    assert distance(model, twin) < 1e-14


@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
@each_rank(2)
def test_a_grad_scaler_with_clipping_changes_nothing(group, rank, world, options):
    ends = []
    for enabled in (True, False):
        model = build("mlp")
        optimizer = sgd(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=enabled)
        sync = ssfx.attach(model, optimizer, process_group=group, scaler=scaler, **options)
        for step in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, rank, step)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        sync.detach()
        ends.append(model)
    assert distance(*ends) < 1e-5


@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
@each_rank(2)
def test_parameters_may_be_frozen_later(group, rank, world, options):
    model, optimizer, sync = attach_mlp(group, **options)
    train(model, optimizer, rank, range(2))
    optimizer.zero_grad()
    model.middle.weight.requires_grad_(False)
    weight = model.middle.weight.detach().clone()
    train(model, optimizer, rank, range(2, 5))
    report = {
        "kept": torch.equal(weight, model.middle.weight),
        "without_grad": model.middle.weight.grad is None,
        "same": same_on_all_ranks(group, model),
        "goes_on": sync.step == 5 and sync.skipped_steps == 0,
    }
    sync.detach()
    assert all(report.values()), report


@each_rank(2)
def test_nested_no_sync(group, rank, world):
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group)
    seen = []
    with sync.no_sync():
        with sync.no_sync():
            loss_of(model, rank, 0).backward()
        seen.append(sync.step)
        loss_of(model, rank, 1).backward()
        seen.append(sync.step)
    loss_of(model, rank, 2).backward()
    seen.append(sync.step)
    sync.detach()
    assert seen == [0, 0, 1]


@pytest.mark.parametrize("options", [{}, TOPK, work.DGC | {"memory": None}], ids=["ddp", "topk", "ssfusion"])
@each_rank(2)
def test_detach_leaves_nothing_behind(group, rank, world, options):
    model = build("mlp")
    optimizer = sgd(model.parameters())

    def hooks() -> int:
        count = len(model._forward_hooks) + len(model._forward_pre_hooks)
        count += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
        return count + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())

    threads = set(threading.enumerate())
    report = {}
    for turn in ("first", "second"):
        sync = ssfx.attach(model, optimizer, process_group=group, **{"costs": costs_for(world), **options})
        train(model, optimizer, rank, range(7))
        report[f"{turn} replicas equal"] = same_on_all_ranks(group, model)
        sync.detach()
        sync.detach()
        report[f"{turn} no hooks"] = hooks() == 0
        report[f"{turn} no threads"] = set(threading.enumerate()) <= threads
    local = build("mlp")
    local.load_state_dict(model.state_dict())
    loss_of(local, rank, 9).backward()
    optimizer.zero_grad()
    loss_of(model, rank, 9).backward()
    pairs = zip(model.parameters(), local.parameters(), strict=True)
    report["local gradients"] = all(torch.equal(p.grad, q.grad) for p, q in pairs)
    assert all(report.values()), report


def test_one_rank_passes_gradients_through(pool: Pool) -> None:
    _passes_through(None)
    pool.run(_alone, 1)


def _alone(group: Any, rank: int, world: int) -> None:
    _passes_through(group)


def _passes_through(group: Any) -> None:
    model, twin = build("mlp"), build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sync = ssfx.attach(model, optimizer, process_group=group, **TOPK)
    with sync.no_sync():
        loss_of(model, 0, 0).backward()
    loss_of(twin, 0, 0).backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
    sync.synchronize()
    optimizer.step()
    sync.load_state_dict(sync.state_dict())
    assert sync.stats()["scheme"] == "per_tensor"
    sync.detach()


SCRIPT = Path(__file__).parent / "script.py"


def _launch(started: Started, folder: Path, number: int, *args: str) -> list[tuple[int, str]]:
    command = [sys.executable, str(SCRIPT), str(folder / f"store{number}")]
    ranks = [
        started.start([*command, str(rank), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    return [(process.returncode, text) for process in ranks for text in (process.communicate(timeout=HANG_S)[0],)]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_script_that_simply_ends_exits_cleanly(started: Started, tmp_path: Path) -> None:
    for code, text in _launch(started, tmp_path, 0, "ssfusion_oi", "fine"):
        assert code == 0, text
        assert text.split() == ["done"]


@pytest.mark.slow
def test_an_exception_in_one_backward_lets_every_process_end(started: Started, tmp_path: Path) -> None:
    (broken, text), (waiting, told) = _launch(started, tmp_path, 0, "per_tensor", "broken")
    assert broken == 1
    assert text.rstrip().endswith("ValueError: this backward pass is broken")
    assert waiting != 0, told  # its peer is gone


def test_parameters_of_all_ranks_start_equal(pool: Pool) -> None:
    first, *others = pool.run(_parameters_after_attach, 3)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


def _parameters_after_attach(group: Any, rank: int, world: int) -> dict[str, torch.Tensor]:
    model = build("mlp", seed=rank)
    ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group).detach()
    return parameters(model)


@pytest.mark.parametrize("scheme", ["per_tensor", "equal_count", "fused_all"])
@each_rank(2)
def test_an_empty_parameter_is_exchanged_as_nothing(group, rank, world, scheme):
    """Train a model whose last parameter has no elements."""
    model = _WithEmpty()
    optimizer = sgd(model.parameters())
    sync = ssfx.attach(model, optimizer, process_group=group, scheme=scheme, compressor="topk", density=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * rank + step))).backward()
        optimizer.step()
    sync.detach()
    assert same_on_all_ranks(group, model)


@each_rank(2)
def test_several_optimizers_exchange_once_a_step(group, rank, world):
    model, twin = build("mlp"), build("mlp")
    mine = [sgd(list(model.parameters())[:2]), sgd(list(model.parameters())[2:])]
    theirs = sgd(twin.parameters())
    sync = ssfx.attach(model, mine, process_group=group)
    ddp = DistributedDataParallel(twin, process_group=group)
    worst = 0.0
    for step in range(STEPS):
        for net, optimizers in ((model, mine), (ddp, [theirs])):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss_of(net, rank, step, "mlp").backward()
            for optimizer in optimizers:
                optimizer.step()
        pairs = zip(model.parameters(), twin.parameters(), strict=True)
        worst = max(worst, *(float((p.grad - q.grad).abs().max()) for p, q in pairs))
    exchanged = sync.step
    sync.detach()
    assert exchanged == work.STEPS
    assert worst < 1e-6
    assert distance(model, twin) < 1e-6


@each_rank(2)
def test_wrapped_optimizers_are_seen_through(group, rank, world):
    model = build("mlp")
    optimizer = sgd(model.parameters())
    wrapped = _Wrapped(optimizer)
    sync = ssfx.attach(model, wrapped, process_group=group, **SPARSE)  # type: ignore[arg-type]
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step, "mlp").backward()
        wrapped.step()
    steps = sync.step
    sync.detach()
    assert steps == work.STEPS
    assert same_on_all_ranks(group, model)


@each_rank(2)
def test_who_has_detached_may_be_waited_for_outside_of_the_exchange(group, rank, world):
    """Go on with the Comm of an exchange that has ended, whose ranks left word that they take part in no other."""
    model = build("mlp")
    sync = ssfx.attach(model, sgd(model.parameters()), process_group=group, **SPARSE)
    loss_of(model, rank, 0, "mlp").backward()
    sync.detach()
    sync.comm.look()  # a rank that waits for a second calls it
    assert float(sync.comm.all_reduce(torch.ones(1, dtype=torch.float32)).wait()) == 2.0


@pytest.mark.parametrize("scheme", ["per_tensor", "oktopk", "ssfusion_oi", "powersgd"])
def test_exempt_kinds_are_exchanged_as_by_ddp(pool: Pool, scheme: str) -> None:
    weights = {"first.weight", "middle.weight", "last.weight"}
    density = {} if scheme == "powersgd" else {"density": 0.05}
    for differ, compressed, text in pool.run(work.exempt, 2, {"scheme": scheme, "exempt": "vectors,norms", **density}):
        assert differ <= weights
        assert compressed <= weights
        assert compressed == weights or scheme == "ssfusion_oi"  # it leaves small tensors dense by measured costs
        assert "norm.bias" in text


def test_a_handle_says_what_it_does(pool: Pool) -> None:
    for text in pool.run(work.handle_text, 2, work.SPARSE, 1):
        assert text.startswith("<ssfx.Sync: per_tensor, topk at density 0.05 on 2 ranks; ")
        assert text.endswith(" messages, step 1>")
    small = {"scheme": "hipress", "density": 0.05, "rule": "threshold"}
    for text in pool.run(work.handle_text, 2, small, 7):
        assert text.endswith(" messages, all sent dense, step 7>")
    for text in pool.run(work.handle_text, 2, {"scheme": "ddp", "compressor": "fp16"}, 1):
        assert text.startswith("<ssfx.Sync: ddp, fp16 on 2 ranks; ")
