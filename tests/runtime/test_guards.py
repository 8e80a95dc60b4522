"""What would train wrongly without an error is refused in one line, before any weight has moved."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG_S, Started
from runtime import work_guards as work
from runtime.pool import Pool
from runtime.work_attach import SPARSE

import ssfx
from ssfx.runtime.checks import several_ranks

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
def test_a_tensor_that_no_exchange_can_take_is_named_and_nothing_is_left(pool: Pool, case: str) -> None:
    for text, clean in pool.run(work.untakable, 2, case):
        said(text, *WORDS[case])
        assert clean


def test_attaching_in_inference_mode_is_refused() -> None:
    model = torch.nn.Linear(3, 2)
    with torch.inference_mode():
        said(work.error_of(lambda: ssfx.attach(model, work.sgd(model.parameters()))), "inference_mode", "no_grad")


def test_buffers_of_any_dtype_and_strides_are_made_equal(pool: Pool) -> None:
    assert pool.run(work.takable_buffers, 2) == [[], []]


# ---- optimizers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("", ["SGD", "number 2 of group 0", "(5, 6)", "ModuleList"]),
        ("named", ["criterion.weight", "(5, 6)"]),
        ("later", ["number 0 of group 1"]),
    ],
)
def test_weights_that_no_exchange_covers_are_named(pool: Pool, case: str, words: list[str]) -> None:
    for text in pool.run(work.foreign, 2, case):
        said(text, *words)


@pytest.mark.parametrize(
    "case",
    [
        "two models, one optimizer", "two models, lists of both", "frozen", "never used", "tied later",
        "an optimizer that attach does not get",
    ],
)  # fmt: skip
def test_parameters_of_others_are_no_error(pool: Pool, case: str) -> None:
    for text, same in pool.run(work.allowed, 2, case):
        assert text == ""
        assert same


@pytest.mark.parametrize("given_up", [True, False])
@pytest.mark.parametrize("options", [{}, SPARSE, LR_SCALED], ids=["ddp", "topk", "lr_scaled"])
def test_an_optimizer_made_after_attach_is_treated_like_the_first(
    pool: Pool, options: dict[str, Any], given_up: bool
) -> None:
    for report in pool.run(work.new_optimizer, 2, options, given_up):
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
