"""What would train wrongly without an error is refused in one line, before any weight has moved, or said."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG_S, Started
from runtime.habit import TOPK, Habits, Rank, far, heard, refused, sgd
from torch import nn

from ssfx.runtime.checks import several_ranks
from ssfx.runtime.parted import fingerprint

habits = Habits(__name__)
test_on_virtual_ranks, test_on_real_ranks = habits.tests()


def said(text: str, *words: str) -> None:
    """The text is one line that has all these words."""
    assert text
    assert "\n" not in text
    for word in words:
        assert word in text


# ---- the process group ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, ""),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE=2"),
        ({"RANK": "1"}, "RANK=1"),
        ({"RANK": "0"}, ""),
        ({"WORLD_SIZE": "1", "RANK": "0", "SLURM_STEP_NUM_TASKS": "8"}, ""),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS=8"),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, ""),  # the batch script itself
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4"),
        ({"PMI_SIZE": "4"}, "PMI_SIZE=4"),
        ({"WORLD_SIZE": "many"}, ""),
        ({"WORLD_SIZE": ""}, ""),
    ],
)
def test_the_environment_says_whether_there_are_several_ranks(environment: dict[str, str], reason: str) -> None:
    assert several_ranks(environment) == reason


@pytest.mark.slow
@pytest.mark.parametrize(("case", "words"), [("told", ["WORLD_SIZE=2"]), ("untold", []), ("step", [])])
def test_attaching_before_the_process_group_is_refused(
    started: Started, tmp_path: Path, case: str, words: list[str]
) -> None:
    command = [sys.executable, str(Path(__file__).parent / "script_order.py"), str(tmp_path / "store")]
    ranks = [
        started.start([*command, str(rank), case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    for process in ranks:
        text, weights = process.communicate(timeout=HANG_S)[0].splitlines()
        said(text, "init_process_group before ssfx.attach", *words)
        assert weights == "untouched"


# ---- buffers and optimizers ------------------------------------------------------------------------------------------


@habits("buffers of any dtype and strides are made equal")
def buffers_of_any_dtype_and_strides_are_made_equal(one: Rank) -> None:
    generator = torch.Generator().manual_seed(one.rank)
    model = nn.Linear(8, 4)
    whole = torch.randint(0, 100, (3, 4), generator=generator)
    makers: dict[str, Any] = {
        str(dtype).removeprefix("torch."): lambda numbers, dtype=dtype: numbers.to(dtype)
        for dtype in (torch.int16, torch.uint16, torch.uint64, torch.bool, torch.complex64, torch.float8_e4m3fn)
    }
    makers["expanded"] = lambda numbers: numbers[:1].float().expand(5, 4)
    makers["transposed"] = lambda numbers: numbers.t()
    makers["conjugate"] = lambda numbers: (numbers * (1 + 1j)).conj()
    makers["scalar"] = lambda numbers: numbers[0, 0].clone()
    for name, make in makers.items():
        model.register_buffer(name, make(whole))
    one.attach(model)
    first = torch.randint(0, 100, (3, 4), generator=torch.Generator().manual_seed(0))
    buffers = dict(model.named_buffers())
    assert [n for n, make in makers.items() if not torch.equal(buffers[n].cdouble(), make(first).cdouble())] == []


LEFT_OUT = {
    "unnamed": ["SGD", "number 2 of group 0", "(5, 6)", "ModuleList"],
    "named": ["criterion.weight", "(5, 6)"],
    "later": ["number 0 of group 1"],
}


@habits("pytorch-metric-learning: a loss has weights, which the optimizer holds", TOPK, case=LEFT_OUT)
def weights_that_no_exchange_covers_are_named(one: Rank, case: str) -> None:
    torch.manual_seed(0)
    net, weights = nn.Linear(8, 6), nn.Linear(6, 5, bias=False)
    held = {
        "unnamed": [*net.parameters(), *weights.parameters()],
        "named": [*net.named_parameters("net"), *weights.named_parameters("criterion")],
        "later": net.parameters(),
    }
    optimizer, _ = one.attach(net, sgd(held[case]))
    before = weights.weight.detach().clone()
    with refused(*LEFT_OUT[case]):
        for step in range(3):
            if case == "later" and step == 1:
                optimizer.add_param_group({"params": list(weights.parameters())})
            one.train(net, optimizer, [step], lambda step: weights(net(one.randn(step, 4, 8))).square().mean())
    assert torch.equal(before, weights.weight)


CASES = [
    "one optimizer",
    "lists of both",
    "frozen",
    "never used",
    "tied later",
    "an optimizer that attach does not get",
]


@habits("two models; tied and frozen parts; a second optimizer", TOPK, case=CASES)
def parameters_of_others_are_no_error(one: Rank, case: str) -> None:
    """Train what holds parameters that no exchange of its own has, and may."""
    torch.manual_seed(0)
    a, b = nn.Linear(8, 8), nn.Linear(8, 8)
    both = nn.ModuleList([a, b])
    optimizers = [sgd(both)]
    if case == "one optimizer":
        one.attach(a, optimizers[0])
        one.attach(b, optimizers[0])
    elif case == "lists of both":
        optimizers = [sgd(a), sgd(b)]
        one.attach(a, optimizers)
        one.attach(b, optimizers)
    elif case == "frozen":
        b.requires_grad_(False)
        one.attach(a, optimizers[0])
    elif case == "never used":  # tied after the optimizer was made
        b.weight, b.bias = a.weight, a.bias
        one.attach(a, optimizers[0])
    elif case == "tied later":
        one.attach(both, optimizers[0])
        b.weight = a.weight
    else:
        optimizers = [sgd(a), torch.optim.SGD(b.parameters(), lr=0.0)]
        one.attach(a, optimizers[0])
    one.train(both, optimizers, range(3), lambda step: b(a(one.randn(step, 4, 8))).square().mean())
    assert one.agree(both)


@habits(
    "a scheduler or a phase that makes a new optimizer",
    {},
    TOPK,
    TOPK | {"memory": "lr_scaled"},
    given_up=[True, False],
)
def an_optimizer_made_after_attach_is_treated_like_the_first(one: Rank, given_up: bool) -> None:
    """Go on with a new optimizer of the same parameters, beside a twin whose optimizer takes its rate."""
    (model, first, sync), (twin, old, reference) = one.mlp(0.0), one.mlp(0.0)
    optimizer: torch.optim.Optimizer = first
    for step in range(8):
        if step == 4:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
            if given_up:
                del first
        for each in (optimizer, old):
            each.zero_grad()
        with sync.no_sync() if step == 6 else nullcontext():
            one.loss(model, step).backward()
        if step == 6:
            sync.synchronize()
        one.loss(twin, step).backward()
        if step == 4:
            old.param_groups[0]["lr"] = 0.02
        for each in (optimizer, old):
            each.step()
    assert far(model, twin) == 0.0
    assert sync.step == reference.step == 8


@habits("the same with a memory that has the momentum", TOPK)
def an_optimizer_made_after_attach_must_suit_the_memory(one: Rank) -> None:
    model, _, _ = one.mlp(0.0, memory="dgc")
    with refused("momentum=0"):
        sgd(model).step()


# ---- signs of zeros --------------------------------------------------------------------------------------------------

ABSTAIN = "signsgd(zeros=abstain)"


@habits(
    "embedding tables, of which no rank uses most rows",
    scheme=["signsgd", "fused_all"],
    table=["Embedding", "EmbeddingBag"],
)
def a_zero_abstains_or_is_positive(one: Rank, scheme: str, table: str) -> None:
    sent = []
    for compressor in ("signsgd", ABSTAIN):
        torch.manual_seed(0)
        model = nn.Sequential(getattr(nn, table)(40, 16), nn.Linear(16, 8))
        start = model[0].weight.detach().clone()
        with heard() as lines:
            optimizer, sync = one.attach(
                model, torch.optim.SGD(model.parameters(), lr=1e-3), scheme=scheme, compressor=compressor
            )

        def loss(step: int, model: nn.Module = model) -> torch.Tensor:
            generator = torch.Generator().manual_seed(10 * step + one.rank)
            return model(torch.randint(0, 10, (8, 2), generator=generator)).square().sum()

        one.train(model, optimizer, range(4), loss)
        moved = (model[0].weight.detach() - start).abs().amax(1)
        assert float(moved[:10].max()) > 0
        # the learning rate in every step
        assert float(moved[10:].max()) == (0.0 if compressor == ABSTAIN else pytest.approx(4e-3, rel=1e-3))
        assert len(lines) == (compressor == "signsgd" and one.rank == 0)
        for line in lines:
            said(line, "signsgd", "rows of 0 ", ABSTAIN)
        sent.append(int(sync.stats()["sent_bytes"]))
    assert sent[0] < sent[1] <= 2 * sent[0]


# ---- ranks that part -------------------------------------------------------------------------------------------------

PARTED = {
    "nothing": "",
    "rate": "learning rate of group 0 is",
    "change": "not every rank made",
    "no step": "averages that were thrown away is 0 on rank 0 and 1 on rank 1",
}


@habits("a rank does something alone in the fifth of 11 steps", {}, TOPK, done=PARTED)
def ranks_whose_weights_part_are_told_so_once_with_the_reason(one: Rank, done: str) -> None:
    model, optimizer, _ = one.mlp()
    with heard() as lines:
        for step in range(11):
            optimizer.zero_grad()
            model(one.randn(step, 4, 20)).square().mean().backward()
            alone = one.rank == 1 and step == 4
            if alone and done == "rate":
                optimizer.param_groups[0]["lr"] /= 2
            if not (alone and done == "no step"):
                optimizer.step()
            if alone and done == "change":
                with torch.no_grad():
                    model.first.weight.mul_(1.5)
    told = [line for line in lines if "no longer equal" in line]
    assert len(told) == (done != "nothing" and one.rank == 0)  # rank 0 speaks for all
    for line in told:
        said(line, "no longer equal on all ranks (compared before step 10)", PARTED[done])
    if done != "nothing":
        one.end()


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int64, torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.complex64, torch.complex128],
)
@pytest.mark.parametrize("size", [6, 5000])
def test_a_fingerprint_is_of_bits_and_places(dtype: torch.dtype, size: int) -> None:
    first = torch.zeros(size).to(dtype)
    first[1] = 1.0
    other, moved = first.clone(), first.clone()
    other[size - 1] = 1.0
    moved[[1, size - 2]] = first[[size - 2, 1]]
    same = torch.stack([first, first], 1).t()[1]
    assert fingerprint(first) == fingerprint(same)
    assert fingerprint(first) != fingerprint(other)
    assert fingerprint(first) != fingerprint(moved)


def test_signs_of_zeros_are_no_difference() -> None:
    assert fingerprint(torch.tensor([0.0, 1.0])) == fingerprint(torch.tensor([-0.0, 1.0]))
