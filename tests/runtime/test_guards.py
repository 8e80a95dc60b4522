"""What would train wrongly without an error is refused in one line, before any weight has moved."""

import subprocess
import sys
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG_S, Started
from runtime import work_guards as work
from runtime.models import build, loss_of
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work_attach import SPARSE, same_on_all_ranks, sgd
from runtime.work_guards import UNTAKABLE, _lazy, _loss_with_weights, error_of
from torch import nn

import ssfx
from ssfx.runtime.checks import several_ranks
from ssfx.runtime.parted import fingerprint

LR_SCALED = SPARSE | {"memory": "lr_scaled"}


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


# ---- parameters and buffers -----------------------------------------------------------------------------------------

WORDS = {
    "lazy": ["parameter 0.weight", "lazy", "one batch"],
    "lazy buffer": ["buffer 1.running_mean", "lazy"],
    "meta": ["parameter 0.weight", "meta", "to_empty"],
    "meta buffer": ["buffer 0.table", "meta"],
    "script": ["TorchScript"],
    "traced": ["TorchScript"],
    "coo buffer": ["buffer 0.table", "sparse_coo", "dense"],
    "csr buffer": ["buffer 0.table", "sparse_csr"],
    "jagged buffer": ["buffer 0.table", "jagged"],
    "sparse parameter": ["parameter adjacency", "sparse_coo"],
    "quantised buffer": ["buffer 0.table", "quantised", "qint8"],
    "subclass": ["buffer 0.table", "_TwoParts"],
    "inference": ["buffer 0.table", "inference_mode"],
}


@pytest.mark.parametrize("case", work.UNTAKABLE)
@each_rank(2)
def test_a_tensor_that_no_exchange_can_take_is_named_and_nothing_is_left(group, rank, world, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that what it makes here is a beta or deprecated
        model = UNTAKABLE[case]()
    threads = threading.active_count()
    text = error_of(lambda: ssfx.attach(model, sgd(model.parameters()), process_group=group, scheme="topk"))
    hooks = any(part._forward_pre_hooks or part._forward_hooks for part in model.modules() if not _lazy(part))
    again = error_of(lambda: ssfx.attach(model, sgd(model.parameters()), process_group=group, scheme="topk"))
    said(text, *WORDS[case])
    assert not hooks
    assert threads == threading.active_count()
    assert again == text


def test_attaching_in_inference_mode_is_refused() -> None:
    model = torch.nn.Linear(3, 2)
    with torch.inference_mode():
        said(work.error_of(lambda: ssfx.attach(model, work.sgd(model.parameters()))), "inference_mode", "no_grad")


@each_rank(2)
def test_buffers_of_any_dtype_and_strides_are_made_equal(group, rank, world):
    generator = torch.Generator().manual_seed(rank)
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
    ssfx.attach(model, sgd(model.parameters()), process_group=group).detach()
    first = torch.randint(0, 100, (3, 4), generator=torch.Generator().manual_seed(0))
    buffers = dict(model.named_buffers())
    assert [n for n, make in makers.items() if not torch.equal(buffers[n].cdouble(), make(first).cdouble())] == []


# ---- optimizers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("", ["SGD", "number 2 of group 0", "(5, 6)", "ModuleList"]),
        ("named", ["criterion.weight", "(5, 6)"]),
        ("later", ["number 0 of group 1"]),
    ],
)
@each_rank(2)
def test_weights_that_no_exchange_covers_are_named(group, rank, world, case, words):
    said(error_of(lambda: _loss_with_weights(group, rank, case)), *words)


@pytest.mark.parametrize(
    "case",
    [
        "two models, one optimizer", "two models, lists of both", "frozen", "never used", "tied later",
        "an optimizer that attach does not get",
    ],
)  # fmt: skip
@each_rank(2)
def test_parameters_of_others_are_no_error(group, rank, world, case):
    """Train what holds parameters that no exchange of its own has, and may."""
    torch.manual_seed(0)
    a, b = nn.Linear(8, 8), nn.Linear(8, 8)
    both = nn.ModuleList([a, b])
    syncs = []

    def attach(model: nn.Module, optimizer: Any) -> None:
        syncs.append(ssfx.attach(model, optimizer, process_group=group, **SPARSE))

    def train() -> None:
        one = sgd(both.parameters())
        optimizers = [one]
        if case == "two models, one optimizer":
            attach(a, one)
            attach(b, one)
        elif case == "two models, lists of both":
            optimizers = [sgd(a.parameters()), sgd(b.parameters())]
            attach(a, optimizers)
            attach(b, optimizers)
        elif case == "frozen":
            b.requires_grad_(False)
            attach(a, one)
        elif case == "never used":  # tied after the optimizer was made
            b.weight, b.bias = a.weight, a.bias
            attach(a, one)
        elif case == "tied later":
            attach(both, one)
            b.weight = a.weight
        else:
            assert case == "an optimizer that attach does not get"
            optimizers = [sgd(a.parameters()), torch.optim.SGD(b.parameters(), lr=0.0)]
            attach(a, optimizers[0])
        for step in range(3):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank))
            for optimizer in optimizers:
                optimizer.zero_grad()
            b(a(x)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()

    text = error_of(train)
    for sync in syncs:
        sync.detach()
    assert text == ""
    assert same_on_all_ranks(group, both)


@pytest.mark.parametrize("given_up", [True, False])
@pytest.mark.parametrize("options", [{}, SPARSE, LR_SCALED], ids=["ddp", "topk", "lr_scaled"])
@each_rank(2)
def test_an_optimizer_made_after_attach_is_treated_like_the_first(group, rank, world, options, given_up):
    """Go on with a new optimizer of the same parameters, beside a twin whose optimizer takes its rate."""
    model, twin = build("mlp"), build("mlp")
    rates = (0.1, 0.02)
    old = torch.optim.SGD(twin.parameters(), lr=rates[0])
    first = torch.optim.SGD(model.parameters(), lr=rates[0])
    sync = ssfx.attach(model, first, process_group=group, **options)
    reference = ssfx.attach(twin, old, process_group=group, **options)
    optimizer: torch.optim.Optimizer = first
    for step in range(8):
        if step == 4:
            optimizer = torch.optim.SGD(model.parameters(), lr=rates[1])
            if given_up:
                del first
        optimizer.zero_grad()
        old.zero_grad()
        with sync.no_sync() if step == 6 else nullcontext():
            loss_of(model, rank, step).backward()
        if step == 6:
            sync.synchronize()
        loss_of(twin, rank, step).backward()
        if step == 4:
            old.param_groups[0]["lr"] = rates[1]
        optimizer.step()
        old.step()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    report = {
        "same as one optimizer": all(torch.equal(a, b) for a, b in pairs),
        "ranks agree": same_on_all_ranks(group, model),
        "exchanges": sync.step == reference.step == 8,
    }
    sync.detach()
    reference.detach()
    assert all(report.values()), report


def test_an_optimizer_made_after_attach_must_suit_the_memory(pool: Pool) -> None:
    for text in pool.run(work.new_optimizer_that_cannot_be, 2):
        said(text, "momentum=0")


# ---- signs of zeros -------------------------------------------------------------------------------------------------

ABSTAIN = "signsgd(zeros=abstain)"


@pytest.mark.parametrize("table", ["embedding", "bag"])
@pytest.mark.parametrize("scheme", ["signsgd", "fused_all"])
def test_a_zero_abstains_or_is_positive(pool: Pool, scheme: str, table: str) -> None:
    positive, abstain = (
        pool.run(work.unused_rows, 2, {"scheme": scheme, "compressor": compressor}, table)
        for compressor in ("signsgd", ABSTAIN)
    )
    for rank, (one, two) in enumerate(zip(positive, abstain, strict=True)):
        assert one["unused"] == pytest.approx(4e-3, rel=1e-3)  # the learning rate in every step
        assert two["unused"] == 0.0
        assert one["used"] > 0
        assert two["used"] > 0
        assert one["same"]
        assert two["same"]
        assert two["lines"] == []
        assert len(one["lines"]) == (rank == 0)
        for line in one["lines"]:
            said(line, "signsgd", "rows of 0 ", ABSTAIN)
        assert one["sent"] < two["sent"] <= 2 * one["sent"]


# ---- ranks that part ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"scheme": "ddp"}, SPARSE], ids=["ddp", "sparse"])
@pytest.mark.parametrize(
    ("done", "why"),
    [
        ("nothing", ""), ("rate", "learning rate of group 0 is"), ("change", "not every rank made"),
        ("no step", "averages that were thrown away is 0 on rank 0 and 1 on rank 1"),
    ],
)  # fmt: skip
def test_ranks_whose_weights_part_are_told_so_once_with_the_reason(
    pool: Pool, options: dict[str, Any], done: str, why: str
) -> None:
    first, second = pool.run(work.parted, 2, options, done)
    assert second == []  # rank 0 speaks for all
    if not why:
        assert first == []
        return
    (line,) = first
    said(line, "no longer equal on all ranks (compared before step 10)", why)


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
