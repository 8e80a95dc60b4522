"""Runs of sharded models on real ranks: trained as whole ones, evaluated, resumed, and refused where they cannot be."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.pool import Pool
from workloads.fakes import make_case
from workloads.work import Interrupted

import ssfx
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.config.plans import check_plans
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.sharded import ShardedExchange
from ssfx.lab.workloads.train import train

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
    whole = pair.run(run, 2, str(tmp_path / "a"), {**changes, "steps": 4}, None, None)
    shared = {**changes, **SHARDED, "steps": 4, "reshard_after_forward": not whole_blocks}
    for one, two in zip(whole, pair.run(run, 2, str(tmp_path / "b"), shared, None, None), strict=True):
        for step, loss in one["losses"].items():
            assert two["losses"][step] == pytest.approx(loss, rel=1e-4)
        for name, value in one["result"].metrics.items():
            assert two["result"].metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-3)
        assert two["sent"] >= one["sent"] > 0  # a gather and a sum over shards are an all-reduce, or more


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {**VGG, **FOUR_BITS},
        {**LSTM, **FOUR_BITS, "memory": "residual", "accumulate": 2},
        {**LSTM, "weights": "qsgd(bits=8,norm=max,nearest=True)", "exempt": ("vectors",)},
    ],
    ids=["vgg", "lstm", "weights"],
)
def test_a_sharded_run_resumes_exactly(pair: Pool, tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {**changes, **SHARDED, "steps": 6, "checkpoint_every": 2, "evaluate_every": 3}
    whole = pair.run(run, 2, str(tmp_path / "whole"), changes, None, None)
    assert pair.run(run, 2, str(tmp_path / "cut"), changes, 3, None) == [None, None]
    resumed = pair.run(run, 2, str(tmp_path / "cut"), changes, None, None)
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
    sent = [
        four.run(run, 4, str(tmp_path / str(number)), changes, None, None)[0]["sent"]
        for number, changes in enumerate((both, shared, native))
    ]
    assert sent[0] < sent[1] < sent[2]


@pytest.mark.slow
def test_replicas_exchange_once_in_a_step_of_several_passes(four: Pool, tmp_path: Path) -> None:
    """And the run is that of the whole model, which exchanges once, too."""
    changes = {**VGG, "steps": 3, "scheme": "ddp", "density": None, "memory": None}
    shared = {**changes, "sharding": "hsdp", "shards": 2}
    runs = [
        four.run(run, 4, str(tmp_path / str(number)), one, None, None)[0]
        for number, one in enumerate(({**changes, "accumulate": 2}, {**shared, "accumulate": 2}, shared))
    ]
    assert runs[1]["losses"] == pytest.approx(runs[0]["losses"], rel=1e-4)
    assert runs[1]["between"] == runs[2]["between"] > 0


@pytest.mark.slow
def test_all_ranks_skip_a_step_that_is_not_finite(pair: Pool, tmp_path: Path) -> None:
    changes = {**VGG, **SHARDED, **FOUR_BITS, "steps": 4}
    for found in pair.run(run, 2, str(tmp_path), changes, None, 1):
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


# ---- on each rank ---------------------------------------------------------------------------------------------------


def run(
    group: Any, rank: int, world: int, folder: str, changes: dict[str, Any], stop_at: int | None, bad_step: int | None
) -> dict[str, Any] | None:
    """Train a case, as a worker does; return what came of it, None where it was interrupted.

    In step `bad_step` the loss of rank 1 is NaN.
    """
    case: Case = make_case(world_size=world, **changes)
    records: list[StepRecord] = []
    made: list[Any] = []
    between: list[Any] = []

    def on_step(record: StepRecord) -> None:
        records.append(record)
        if record.step == stop_at:
            raise Interrupted

    def attach(model: Any, optimizer: Any, **options: Any) -> Any:
        found = ssfx.attach(model, optimizer, **options)
        made[:] = [found if isinstance(found, ssfx.Sync) else ShardedExchange(found, model, case), model]
        for one in found._exchanges if case.sharding == "hsdp" else ():
            one.group.replace_all_reduce(partial(counted, one.all_reduce))
        if bad_step is not None and rank == 1:
            model.register_forward_hook(lambda *_: spoilt(_[2]) if len(records) == bad_step else None)
        return made[0]

    def counted(exchange: Any, reduced: torch.Tensor) -> None:
        between.append(exchange(reduced))

    def spoilt(out: torch.Tensor) -> torch.Tensor:
        return out * float("nan")

    try:
        result = train(case, on_step, attach, checkpoint_dir=Path(folder))
    except Interrupted:
        made[0].detach()
        return None
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in made[1].parameters()]
    dist.barrier()
    return {
        "result": result,
        "losses": {one.step: one.loss for one in records},
        "sent": records[-1].sent_bytes,
        "between": len(between),
        "skipped": [one.step for one in records if one.skipped],
        "points": [one.evaluated for one in records],
        "finite": all(bool(torch.isfinite(w).all()) for w in weights),
    }
