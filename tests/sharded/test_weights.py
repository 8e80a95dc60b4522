"""Gathers of weights in fewer bits: equal on all ranks, in bytes as planned, and the sharded weights stay exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sharded import work, work_weights
from sharded.conftest import Run

EIGHT = "qsgd(bits=8,norm=max,nearest=True)"
RANDOM = "qsgd(bits=8,bucket=64,norm=max)"
SHAPES = [pytest.param(2, (0, 2), id="2"), pytest.param(4, (0, 4), id="4"), pytest.param(4, (2, 2), id="2x2")]
HABITS = ["", "clip", "accumulated", "no sync", "no all-reduce", "checkpointed", "compiled", "compiled whole"]


@pytest.mark.parametrize(
    ("weights", "share", "error"),
    [("bf16", 0.51, 2**-8), ("fp8", 0.3, 2**-4), (EIGHT, 0.3, 1 / 253), (RANDOM, 0.3, 1 / 126)],
)
@pytest.mark.parametrize(("world", "shape"), SHAPES)
def test_a_gather_is_equal_everywhere_near_the_shards_and_as_long_as_planned(
    ranks: Run, world: int, shape: Any, weights: str, share: float, error: float
) -> None:
    for found in ranks(work_weights.gathered, world, shape, weights, False, {}):
        assert found["equal"]
        assert found["masters"]
        assert found["torch again"]
        assert found["sent"] == found["stats"]["weight_sent_bytes"] == found["stats"]["planned_weight_bytes"] > 0
        assert found["sent"] <= share * found["native"]
        assert all(found["rounded"].values()) == (weights == "bf16")
        assert max(found["errors"].values()) > 0
        for name, off in found["errors"].items():
            assert off <= error * max(found["largest"].values()) * 1.001, name


def test_exempt_kinds_are_gathered_exactly_and_frozen_blocks_in_fewer_bits(ranks: Run) -> None:
    for found in ranks(work_weights.gathered, 4, (0, 4), EIGHT, True, {"exempt": "vectors,norms"}):
        assert found["equal"]
        assert found["sent"] == found["stats"]["planned_weight_bytes"]
        exact = {name for name, off in found["errors"].items() if off == 0}
        assert {name for name in found["errors"] if name.endswith("bias") or "norm" in name} <= exact
        assert "blocks.0.up.weight" not in exact
        assert "blocks.1.up.weight" not in exact


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("shape", [(0, 4), (2, 2)])
def test_the_native_type_is_torch_bit_for_bit(ranks: Run, habit: str, shape: Any) -> None:
    for distance, equal, stats in ranks(
        work.beside_native, 4, shape, habit, "bf16", {"scheme": "ddp", "weights": "bf16"}
    ):
        assert distance == 0
        assert equal
        assert stats["weight_sent_bytes"] == stats["planned_weight_bytes"]


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((0, 4), {"scheme": "fused_all", "compressor": "qsgd(bits=8,norm=max)", "weights": EIGHT}),
        ((2, 2), {"scheme": "topk", "density": 0.5, "weights": EIGHT, "exempt": "vectors"}),
    ],
    ids=["shards", "replicas"],
)
def test_training_comes_close_and_replicas_stay_equal(ranks: Run, habit: str, shape: Any, options: Any) -> None:
    for distance, equal in ranks(work_weights.trained, 4, shape, habit, options):
        assert equal
        assert 0 < distance < 0.1


@pytest.mark.parametrize("weights", [EIGHT, RANDOM])
@pytest.mark.parametrize("shape", [(0, 4), (2, 2)])
def test_a_resumed_run_is_exact_and_evaluation_changes_nothing(ranks: Run, shape: Any, weights: str) -> None:
    options = {"scheme": "ddp", "weights": weights}
    for same, memory, replicas in ranks(work.resumed, 4, shape, options):
        assert same
        assert memory
        assert replicas
    for distance, low in ranks(work_weights.evaluated, 4, shape, options):
        assert distance == 0
        assert low


def test_a_state_of_other_weights_is_refused(ranks: Run) -> None:
    for text in ranks(work.changed_state, 4, (0, 4), {"scheme": "ddp", "weights": EIGHT}, "weights", "bf16"):
        assert "weights=bf16" in text
        assert "\n" not in text


def test_checkpoints_hold_the_exact_weights_and_detach_gathers_them(ranks: Run, tmp_path: Path) -> None:
    options = {"scheme": "ddp", "weights": EIGHT}
    assert ranks(work_weights.saved, 4, (0, 4), options, str(tmp_path)) == [(True, True)] * 4
    assert ranks(work.native_again, 4, (2, 2), options) == [0.0] * 4


@pytest.mark.parametrize(
    ("built", "word"), [({"reshard_after_forward": 2}, "reshard_after_forward is a number"), ({}, "several dtypes")]
)
def test_what_torch_alone_can_gather_is_refused_in_one_line(ranks: Run, built: Any, word: str) -> None:
    for text in ranks(work_weights.refusal, 4, built):
        assert word in text
        assert "leave weights out" in text
        assert "\n" not in text
