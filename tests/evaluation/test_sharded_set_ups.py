"""Where whole models do not fit, the edition's baselines are FSDP2 and HSDP, and nothing of whole models moves."""

from pathlib import Path

import pytest

from experiments.common.evaluation.set_ups import places, sharded_places, sharded_sentence
from ssfx.config.simulations import resolve_simulations
from ssfx.core.rows import Row
from ssfx.lab.engines import engines
from ssfx.lab.results.store import Store

WHERE = (
    "cluster=box cluster.nodes=8 cluster.device=h100 cluster.intra.link=nvlink cluster.link=eth_10_tcp precision=bf16"
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    words = [
        "model=llama3_8b,gpt2_large scheme=ddp",
        "model=llama3_8b,gpt2_large scheme=ddp sharding=fsdp,hsdp reduce_dtype=fp32,bf16",
        "model=llama3_8b,gpt2_large scheme=powersgd sharding=hsdp reduce_dtype=bf16",
    ]
    cases = [case for some in words for case in resolve_simulations(f"{WHERE} {some}".split())]
    return engines["simulate"].run(cases, Store(Path(tmp_path_factory.mktemp("rows"))), progress=False)


def test_a_model_that_fits_whole_has_no_sharded_place(rows: list[Row]) -> None:
    whole, too_large = places(rows)
    assert ([one.model for one in whole], too_large) == (["gpt2_large"], 1)
    assert [one.model for one in sharded_places(rows)] == ["llama3_8b"]
    assert places([row for row in rows if row.case.sharding == "none"]) == (whole, too_large)


def test_the_baseline_is_the_best_of_torch_in_either_precision(rows: list[Row]) -> None:
    (place,) = sharded_places(rows)
    dense = {
        (row.case.sharding, row.case.reduce_dtype): row.metrics["iteration_s"]
        for row in rows
        if row.case.model == "llama3_8b" and row.case.scheme == "ddp" and row.case.sharding != "none"
    }
    assert len(dense) == 4
    assert place.dense_s == min(dense.values())
    assert min(dense, key=dense.__getitem__)[1] == "bf16"


def test_what_was_never_checked_surely_pays_nowhere(rows: list[Row]) -> None:
    (place,) = sharded_places(rows)
    (method,) = place.methods
    assert method.error is None
    assert place.wins == ()
    assert "Where a model fits in shards only (1 places)" in sharded_sentence(rows)
    assert sharded_sentence([row for row in rows if row.case.sharding == "none"]) == ""
