"""What `ssfx.attach` promises any training script: equal weights, residuals in float32, a clean exit."""

import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG_S, Started
from runtime.habit import SSFUSION, TOPK, Habits, Options, Rank, far, sgd
from runtime.models import batch, build, loss_of
from runtime.ranks import ddp
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


@habits("a promise, as of DDP", world=3)
def parameters_of_all_ranks_start_equal(one: Rank) -> None:
    model = build("mlp", seed=one.rank)
    one.attach(model)  # ends with the same weights


@habits("model.bfloat16()", {}, TOPK, SSFUSION, world=(2, 3))
def bf16_parameters_keep_a_float32_residual(one: Rank) -> None:
    model = build("mlp").to(torch.bfloat16)
    optimizer, sync = one.attach(model)
    dtypes = set()

    def gradients(net: nn.Module, step: int) -> None:
        x, y = batch(one.rank, step)
        nn.functional.cross_entropy(net(x.bfloat16()), y).backward()

    for step in range(8):
        local = build("mlp").to(torch.bfloat16)
        local.load_state_dict(model.state_dict())
        gradients(local, step)
        before = sync.store.state_dict()
        optimizer.zero_grad()
        gradients(model, step)
        optimizer.step()  # which commits what was kept back
        after = sync.store.state_dict()
        dtypes |= {kept.dtype for state in after.values() for kept in state.values() if kept.is_floating_point()}
        for (name, p), own in zip(model.named_parameters(), local.parameters(), strict=True):
            old, new = (state.get(name, {}).get("residual", torch.zeros(p.shape)) for state in (before, after))
            mass = one.sum(own.grad.float() + old - new)
            off = float((mass - one.world * p.grad.float()).abs().max() / (mass.abs().max() + 1e-12))
            assert off < 2**-6  # shares, sums and the average are rounded to 8 bits each
    assert dtypes == ({torch.float32} if one.options else set())


@habits("evaluation, another training: the model is attached and detached again", {}, TOPK, SSFUSION, real="only")
def detach_leaves_nothing_behind(one: Rank) -> None:
    model = build("mlp")
    optimizer = sgd(model)

    def hooks() -> int:
        count = len(model._forward_hooks) + len(model._forward_pre_hooks)
        count += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
        return count + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())

    threads = set(threading.enumerate())
    for _ in range(2):
        _, sync = one.attach(model, optimizer)
        one.train(model, optimizer, range(7))
        assert one.agree(model)
        sync.detach()
        sync.detach()
        assert hooks() == 0
        assert set(threading.enumerate()) <= threads
    local = build("mlp")
    local.load_state_dict(model.state_dict())
    optimizer.zero_grad()
    for net in (local, model):
        one.loss(net, 9).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), local.parameters(), strict=True))
    one.end()


@habits("a parameter without elements (empty prompts, absent biases)", how=["per_tensor", "equal_count", "fused_all"])
def an_empty_parameter_is_exchanged_as_nothing(one: Rank, how: str) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(64, 64)), nn.Parameter(torch.zeros(0))])
    optimizer, _ = one.attach(model, scheme=how, compressor="topk", density=0.1)
    one.train(model, optimizer, range(4), lambda step: (one.randn(step, 4, 64) @ model[0]).sum() + model[1].sum())


@habits("a Comm that goes on after its exchange, whose ranks left word that they take part in no other", TOPK)
def who_has_detached_may_be_waited_for_outside_of_the_exchange(one: Rank) -> None:
    model, _, sync = one.mlp()
    one.loss(model, 0).backward()
    sync.detach()
    sync.comm.look()  # a rank that waits for a second calls it
    assert float(sync.comm.all_reduce(torch.ones(1, dtype=torch.float32)).wait()) == 2.0


EXEMPT = {"exempt": "vectors,norms", "density": 0.05}


@habits(
    "norms and biases stay dense, as in DGC's and PowerSGD's recipes",
    *({"scheme": scheme, **EXEMPT} for scheme in ("per_tensor", "oktopk", "ssfusion_oi")),
    {"scheme": "powersgd", "exempt": "vectors,norms"},
)
def exempt_kinds_are_exchanged_as_by_ddp(one: Rank) -> None:
    weights = {"first.weight", "middle.weight", "last.weight"}
    (model, optimizer, sync), twin = one.mlp(), build("mlp")
    for net in (model, ddp(twin, one.group)):
        one.loss(net, 0).backward()
    pairs = zip(model.named_parameters(), twin.parameters(), strict=True)
    assert {name for (name, p), q in pairs if not torch.equal(p.grad, q.grad)} <= weights
    one.train(model, optimizer, range(6))
    segments = [segment for _, lane in sync.plan.lanes() for segment in lane.segments]
    compressed = {name for segment in segments if not segment.dense for name in segment.tensors}
    assert compressed <= weights
    assert compressed == weights or one.options["scheme"] == "ssfusion_oi"  # small ones dense, by measured costs
    with pytest.raises(ConfigError, match=r"norm\.bias"):
        sync.load_state_dict(sync.state_dict() | {"options": "[]"})


SMALL = {"scheme": "hipress", "density": 0.05}  # which leaves small models dense
SAID: dict[str, tuple[Options, int, str, str]] = {
    "topk": (TOPK, 1, "<ssfx.Sync: per_tensor, topk at density 0.05 on 2 ranks; ", " messages, step 1>"),
    "dense": (SMALL, 7, "<ssfx.Sync: hipress, ", " messages, all sent dense, step 7>"),
    "fp16": ({"scheme": "ddp", "compressor": "fp16"}, 1, "<ssfx.Sync: ddp, fp16 on 2 ranks; ", " messages, step 1>"),
}


@habits("print(sync)", case=SAID)
def a_handle_says_what_it_does(one: Rank, case: str) -> None:
    options, steps, begins, ends = SAID[case]
    model, optimizer, sync = one.mlp(**options)
    one.train(model, optimizer, range(steps))
    assert repr(sync).startswith(begins)
    assert repr(sync).endswith(ends)


@habits("a script of several ranks is run on one", TOPK, world=1)
def one_rank_passes_gradients_through(one: Rank) -> None:
    model, optimizer, sync = one.mlp()
    _passes_through(model, optimizer, sync)


def test_without_a_process_group_gradients_pass_through() -> None:
    model = build("mlp")
    optimizer = sgd(model)
    sync = ssfx.attach(model, optimizer, **TOPK)
    _passes_through(model, optimizer, sync)
    sync.detach()


def _passes_through(model: nn.Module, optimizer: torch.optim.Optimizer, sync: ssfx.Sync) -> None:
    twin = build("mlp")
    with sync.no_sync():
        loss_of(model, 0, 0).backward()
    loss_of(twin, 0, 0).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    sync.synchronize()
    optimizer.step()
    sync.load_state_dict(sync.state_dict())
    assert sync.stats()["scheme"] == "per_tensor"


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


# ---- a stranger's script ---------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A model with an embedding, norms, a tied weight and a parameter that some steps do not use."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32))
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens))) * self.scale


def _trained(one: Rank, exchange: bool, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    bare = Net()
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    model: Any = bare if exchange else ddp(bare, one.group)
    sync = one.attach(bare, optimizer)[1] if exchange else model
    for step in range(6):
        for micro in range(2):
            tokens = torch.randint(
                50, (4, 8), generator=torch.Generator().manual_seed(100 * step + 10 * micro + one.rank)
            )
            local = sync.no_sync() if micro == 0 else nullcontext()
            with local, torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = nn.functional.cross_entropy(model(tokens).view(-1, 50), tokens.view(-1)) / 2
                loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return bare


EXACT = (*({"scheme": scheme, "compressor": "topk", "density": 1.0} for scheme in ("per_tensor", "ssfusion_oi")), {})


@habits(
    "a script of somebody else's goes from DDP to ssfx by two lines", *EXACT, real="only", dtype=["float32", "bfloat16"]
)
def two_lines_change_and_nothing_else(one: Rank, dtype: str) -> None:
    """It computes the same to the bit."""
    models = [_trained(one, exchange, getattr(torch, dtype)) for exchange in (False, True)]
    assert far(*models) == 0.0
