"""What `ssfx.attach` promises for HSDP: torch's results where nothing is left out, and shards' bytes as planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sharded import work
from sharded.conftest import Run

from ssfx.core.errors import ConfigError
from ssfx.sharded import torch_fsdp

Options = dict[str, Any]
TOPK: Options = {"scheme": "topk", "density": 0.05}
POWERSGD: Options = {"scheme": "powersgd", "compressor": "powersgd(rank=1)"}
EVERYTHING: Options = {"scheme": "topk", "density": 1.0}


@pytest.mark.parametrize("habit", ["", "clip", "accumulated", "no sync", "no all-reduce", "checkpointed"])
@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["ddp", "topk-1"])
def test_density_one_is_torch_bit_for_bit(ranks: Run, habit: str, options: Options) -> None:
    for distance, equal, _ in ranks(work.beside_native, 4, (2, 2), habit, "", options):
        assert distance == 0
        assert equal


@pytest.mark.parametrize("precision", ["bf16", "bf16 reduced"])
def test_16_bit_weights_and_sums_are_torch_bit_for_bit(ranks: Run, precision: str) -> None:
    for distance, equal, _ in ranks(work.beside_native, 4, (2, 2), "", precision, {}):
        assert distance == 0
        assert equal


@pytest.mark.parametrize(("world", "shape"), [(2, (2, 1)), (4, (4, 1))])
def test_one_shard_of_all_is_torch_bit_for_bit(ranks: Run, world: int, shape: tuple[int, int]) -> None:
    for distance, equal, _ in ranks(work.beside_native, world, shape, "", "", {}):
        assert distance == 0
        assert equal


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "ddp"},
        {"scheme": "ddp_fp16"},
        {"scheme": "ddp_fp16", "compressor": "bf16"},
        {"scheme": "per_tensor", "compressor": "qsgd(bits=8)"},
        {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32)"},
        TOPK,
        {"scheme": "topk", "density": 0.05, "compressor": "topk(value_dtype=float16)"},
        {"scheme": "per_tensor", "compressor": "dgc", "density": 0.05},
        {"scheme": "fused_all", "compressor": "block_topk(block=8)", "density": 0.2},
        POWERSGD,
        {"scheme": "acpsgd", "compressor": "acpsgd(rank=1)"},
        {"scheme": "cltk", "density": 0.05},
        {"scheme": "oktopk", "density": 0.05},
        {"scheme": "gtopk", "density": 0.05},
        {"scheme": "spardl", "density": 0.05},
        {"scheme": "signsgd", "compressor": "signsgd(zeros=abstain)"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_every_method_keeps_replicas_equal_and_resumes(ranks: Run, options: Options) -> None:
    for distance, equal, stats in ranks(work.beside_native, 4, (2, 2), "", "", options):
        assert equal
        assert 0 <= distance < 0.1
        assert (distance == 0) == (options["scheme"] == "ddp")
        assert stats["steps"] == 4
    for weights, memory, replicas in ranks(work.resumed, 4, (2, 2), options):
        assert weights
        assert memory
        assert replicas


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"scheme": "ddp_fp16"}, TOPK, {"scheme": "per_tensor", "compressor": "qsgd(bits=8)"}, POWERSGD],
    ids=["ddp", "fp16", "topk", "qsgd", "powersgd"],
)
def test_bytes_sent_are_bytes_planned(ranks: Run, world: int, options: Options) -> None:
    shape = (2, world // 2)
    results = ranks(work.beside_native, world, shape, "", "", options)
    dense = ranks(work.beside_native, world, shape, "", "", {})
    for (*_, stats), (*_, whole) in zip(results, dense, strict=True):
        assert stats["sent_bytes"] == stats["planned_bytes"] > 0
        assert stats["sent_bytes"] <= whole["sent_bytes"] * (1 if not options else 0.65)


def test_nothing_of_the_replicas_travels_beside_what_is_counted(ranks: Run) -> None:
    for sizes, counted in ranks(work.all_reduces_of_torch, 4, TOPK):
        assert sizes == {1}
        assert counted


@pytest.mark.parametrize("options", [{}, TOPK, POWERSGD], ids=["ddp", "topk", "powersgd"])
def test_a_bad_number_that_the_script_skips_leaves_no_trace(ranks: Run, options: Options) -> None:
    for seen, changed, same, discarded in ranks(work.bad_number, 4, options):
        assert seen
        assert same
        assert discarded
        assert changed == bool(options)


def test_a_step_with_a_bad_number_keeps_the_memory_as_it_was(ranks: Run) -> None:
    results = ranks(work.stepped_with_bad_number, 4)
    for same, undone in results:
        assert same
        assert undone


def test_an_overflow_is_skipped_and_the_memory_follows_the_scale(ranks: Run) -> None:
    for distance, skipped in ranks(work.scaled, 4):
        assert skipped
        assert distance < 1e-5


@pytest.mark.parametrize("clear", ["none", "zeros"])
def test_a_gradient_that_is_thrown_away_leaves_no_trace(ranks: Run, clear: str) -> None:
    for weights, memory, discarded in ranks(work.thrown_away, 4, clear):
        assert weights
        assert memory
        assert discarded


@pytest.mark.parametrize("habit", ["", "accumulated", "no sync", "no all-reduce"])
def test_applied_and_kept_is_what_came_in(ranks: Run, habit: str) -> None:
    assert max(ranks(work.mass, 4, habit)) < 1e-6


def test_after_detach_torch_exchanges_as_before(ranks: Run) -> None:
    assert ranks(work.native_again, 4) == [0.0] * 4


def test_evaluation_before_and_between_steps_changes_nothing(ranks: Run) -> None:
    assert ranks(work.evaluated_between, 4) == [0.0] * 4


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("shards", 4, "shards=4"),
        ("shard", 7, "shard=7"),
        ("rank", 7, "rank=7"),
        ("scheme", "ddp", "scheme=ddp"),
        ("plan", "{}", "plan"),
        ("memory", {"other": {}}, "another model"),
    ],
)
def test_a_state_of_another_place_is_refused(ranks: Run, key: str, value: Any, word: str) -> None:
    for text in ranks(work.changed_state, 4, key, value):
        assert word in text
        assert "\n" not in text


@pytest.mark.parametrize(("what", "word"), [("frozen later", "frozen after attach"), ("factor", "divide_factor")])
def test_what_cannot_be_exchanged_later_is_said(ranks: Run, what: str, word: str) -> None:
    for text in ranks(work.refused_late, 4, what):
        assert word in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((0, 4), TOPK, ["one dimension", "(replicas, shards)"]),
        ((1, 4), TOPK, ["one replica"]),
        ((2, 2), {"scheme": "auto"}, ["auto", "plans at once"]),
        ((2, 2), {"scheme": "ssfusion_oi"}, ["ssfusion_oi", "scheme=topk"]),
        ((2, 2), TOPK | {"memory": "dgc"}, ["memory=dgc", "residual"]),
        ((2, 2), TOPK | {"trace": True}, ["trace"]),
        ((2, 2), {"scheme": "per_tensor", "density_warmup": 8}, ["density_warmup", "drop"]),
        ((2, 2), TOPK | {"process_group": 1}, ["process_group", "mesh"]),
        ((2, 2), TOPK | {"densty": 1}, ["densty", "density"]),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, (tuple, list)) else "",
)
def test_the_rest_is_refused_in_one_line(ranks: Run, shape: Any, options: Options, words: list[str]) -> None:
    for text in ranks(work.refusal, 4, shape, options):
        assert text
        assert "\n" not in text
        for word in words:
            assert word in text


def test_every_rank_has_a_state_file_of_its_own(ranks: Run, tmp_path: Path) -> None:
    results = ranks(work.saved_files, 4, str(tmp_path))
    assert len({name for name, _ in results}) == 4
    assert all(same for _, same in results)


def test_adapters_of_trainers_refuse(ranks: Run) -> None:
    for text in ranks(work.in_an_adapter, 4):
        assert "whole models" in text
        assert "\n" not in text


def test_an_optimizer_made_after_attach_commits_like_the_first(ranks: Run) -> None:
    for weights, memory in ranks(work.later_optimizer, 4):
        assert weights
        assert memory


def test_an_unknown_form_of_torchs_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"object\.shards of fully_shard in another form"):
        torch_fsdp._expected(object(), "shards")


def test_replicas_that_ask_for_different_things_are_refused(ranks: Run) -> None:
    for text in ranks(work.disagreeing, 4):
        assert "0.05" in text
        assert "0.1" in text
        assert "\n" not in text
