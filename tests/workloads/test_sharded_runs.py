"""Runs of sharded models on real ranks: trained as whole ones, evaluated, resumed, and refused where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime.pool import Pool
from workloads import work_sharded

from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.config.plans import check_plans

SHARDED = {"sharding": "fsdp", "shards": 2}
FOUR_BITS = {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32,norm=max)"}
VGG = {"model": "vgg_mini", "optimizer": "sgd", "lr": 0.02, "evaluate": True, "clip_norm": 1.0}
LSTM = {"model": "lstm_tiny", "dataset": "stdlib_text(seq_len=8)", "optimizer": "adam", "lr": 1e-3, "evaluate": True}


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    made = Pool(4)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [VGG, LSTM], ids=["vgg", "lstm"])
@pytest.mark.parametrize("whole_blocks", [False, True])
def test_a_sharded_run_is_that_of_the_whole_model(
    pair: Pool, tmp_path: Path, changes: dict[str, Any], whole_blocks: bool
) -> None:
    whole = pair.run(work_sharded.run, 2, str(tmp_path / "a"), {**changes, "steps": 4}, None, None)
    shared = {**changes, **SHARDED, "steps": 4, "reshard_after_forward": not whole_blocks}
    for one, two in zip(whole, pair.run(work_sharded.run, 2, str(tmp_path / "b"), shared, None, None), strict=True):
        for step, loss in one["losses"].items():
            assert two["losses"][step] == pytest.approx(loss, rel=1e-4)
        for name, value in one["result"].metrics.items():
            assert two["result"].metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-3)
        assert two["sent"] >= one["sent"] > 0  # a gather and a sum over shards are an all-reduce, or more


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{**VGG, **FOUR_BITS}, {**LSTM, **FOUR_BITS, "memory": "residual", "accumulate": 2},
                                     {**LSTM, "weights": "qsgd(bits=8,norm=max,nearest=True)", "exempt": ("vectors",)}],
                         ids=["vgg", "lstm", "weights"])  # fmt: skip
def test_a_sharded_run_resumes_exactly(pair: Pool, tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {**changes, **SHARDED, "steps": 6, "checkpoint_every": 2, "evaluate_every": 3}
    whole = pair.run(work_sharded.run, 2, str(tmp_path / "whole"), changes, None, None)
    assert pair.run(work_sharded.run, 2, str(tmp_path / "cut"), changes, 3, None) == [None, None]
    resumed = pair.run(work_sharded.run, 2, str(tmp_path / "cut"), changes, None, None)
    for rank in range(2):
        assert resumed[rank]["result"].first_step == 2
        assert resumed[rank]["result"].metrics == whole[rank]["result"].metrics
        assert resumed[rank]["points"] == whole[rank]["points"][2:]
        assert resumed[rank]["losses"] == {step: whole[rank]["losses"][step] for step in range(2, 6)}
        one, two = (
            torch.load(tmp_path / folder / "step-6" / f"rank{rank}.pt", weights_only=True)
            for folder in ("whole", "cut")
        )
        assert all(torch.equal(value, two["model"][name]) for name, value in one["model"].items())


@pytest.mark.slow
def test_replicas_of_shards_train_and_send_less(four: Pool, tmp_path: Path) -> None:
    shared = {
        **VGG,
        "sharding": "hsdp",
        "shards": 2,
        "steps": 3,
        "scheme": "topk",
        "density": 0.05,
        "memory": "residual",
    }
    both = {**shared, "shard_compressor": "qsgd(bits=8,norm=max)"}
    native = {**shared, "scheme": "ddp", "density": None, "memory": None}
    sent = [four.run(work_sharded.run, 4, str(tmp_path / str(number)), changes, None, None)[0]["sent"]
            for number, changes in enumerate((both, shared, native))]  # fmt: skip
    assert sent[0] < sent[1] < sent[2]


@pytest.mark.slow
def test_all_ranks_skip_a_step_that_is_not_finite(pair: Pool, tmp_path: Path) -> None:
    changes = {**VGG, **SHARDED, **FOUR_BITS, "steps": 4}
    for found in pair.run(work_sharded.run, 2, str(tmp_path), changes, None, 1):
        assert found["skipped"] == [1]
        assert found["finite"]


def test_words_of_a_run_become_a_sharded_case() -> None:
    words = (
        "sharding=fsdp world_size=2 scheme=fused_all compressor=qsgd memory=residual steps=3 warmup_steps=0 repeats=1"
    )
    (case,) = resolve_job(words.split()).cases
    assert (case.sharding, case.shards, case.memory, case.compressor) == ("fsdp", 2, "residual", "qsgd")
    (case,) = resolve_job(words.replace("memory=residual", "").split()).cases
    assert case.memory == "none"


def checked(words: str) -> None:
    job = resolve_job(words.split())
    check_plans(job.cases, job.cluster)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("trace=true", "trace=true is of runs that train whole models"),
        ("time_compute_only=true", "drop time_compute_only"),
        ("precision=fp16", "use precision=bf16"),
        ("scheme=oktopk", "adds up selected elements"),
    ],
)
def test_what_a_sharded_run_cannot_do_is_said_in_one_line(words: str, says: str) -> None:
    scheme = "" if "scheme" in words else "scheme=ddp"
    with pytest.raises(ConfigError, match=says) as error:
        checked(f"sharding=fsdp world_size=2 {scheme} {words}")
    assert "\n" not in str(error.value)
