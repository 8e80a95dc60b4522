"""What `ssfx.attach` promises for `fully_shard`: torch's results where nothing is left out, and bytes as planned."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sharded import work
from sharded.conftest import Run

from ssfx.config.compose import compose
from ssfx.core.errors import ConfigError
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.sharded import torch_fsdp

Options = dict[str, Any]
TOPK: Options = {"scheme": "topk", "density": 0.05}
SLOW = (
    system_on(cluster_of(compose({"cluster": "local"})["cluster"], 2, "cpu"))
    .at_bandwidth(1e-5)
    .planning_costs(None, None)
)
AUTO: Options = {"scheme": "auto", "density": 0.05, "costs": SLOW}
POWERSGD: Options = {"scheme": "powersgd", "compressor": "powersgd(rank=1)"}
EVERYTHING: Options = {"scheme": "topk", "density": 1.0}
FLAT: Options = {"scheme": "per_tensor", "compressor": "qsgd(bits=4,bucket=32)", "memory": "residual"}
FLAT_TOPK: Options = {**TOPK, "memory": "residual"}
FLAT_EVERYTHING: Options = {**EVERYTHING, "memory": "residual"}
BOTH: Options = {**TOPK, "shards": FLAT}
LEGS = [
    pytest.param((2, 2), TOPK, id="replicas"),
    pytest.param((0, 4), FLAT, id="shards"),
    pytest.param((2, 2), BOTH, id="both"),
]


@pytest.mark.parametrize("habit", ["", "clip", "accumulated", "no sync", "no all-reduce", "checkpointed", "undivided"])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((2, 2), {}, id="replicas-ddp"),
        pytest.param((2, 2), EVERYTHING, id="replicas-topk-1"),
        pytest.param((0, 4), {}, id="shards-ddp"),
        pytest.param((2, 2), {"shards": FLAT_EVERYTHING}, id="both"),
    ],
)
def test_density_one_is_torch_bit_for_bit(ranks: Run, habit: str, shape: Any, options: Options) -> None:
    for distance, equal, _ in ranks(work.beside_native, 4, shape, habit, "", options):
        assert distance == 0
        assert equal


@pytest.mark.parametrize(
    ("shape", "options"), [((2, 2), {**TOPK, "density": 0.3}), ((0, 4), FLAT)], ids=["replicas", "shards"]
)
def test_a_gradient_that_is_set_to_zeros_leaves_nothing_behind(ranks: Run, shape: Any, options: Options) -> None:
    assert max(ranks(work.cancelled, 4, shape, options)) < 1e-5


@pytest.mark.parametrize(("case", "words"), [("loss", ["shape (3,)"]), ("adapter", ["shape (2, 2)", "fully_shard"])])
def test_weights_that_no_exchange_covers_are_named(ranks: Run, case: str, words: list[str]) -> None:
    for text in ranks(work.uncovered, 4, case):
        for word in words:
            assert word in text


@pytest.mark.parametrize("shape", [(2, 2), (0, 4)], ids=["replicas", "shards"])
@pytest.mark.parametrize("precision", ["bf16", "bf16 reduced"])
def test_16_bit_weights_and_sums_are_torch_bit_for_bit(ranks: Run, precision: str, shape: Any) -> None:
    for distance, equal, _ in ranks(work.beside_native, 4, shape, "", precision, {}):
        assert distance == 0
        assert equal


@pytest.mark.parametrize("habit", ["compiled", "compiled whole"])
@pytest.mark.parametrize(("shape", "options"), [((2, 1), EVERYTHING), ((0, 2), FLAT_EVERYTHING)])
def test_compiled_blocks_and_models_are_torch_bit_for_bit(ranks: Run, shape: Any, options: Options, habit: str) -> None:
    for distance, equal, _ in ranks(work.beside_native, 2, shape, habit, "", options):
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
        {"scheme": "ddp_quantized"},
        {"scheme": "gtopk", "density": 0.05},
        {"scheme": "spardl", "density": 0.05},
        {"scheme": "signsgd", "compressor": "signsgd(zeros=abstain)"},
        AUTO,
    ],
    ids=lambda options: " ".join(str(value) for key, value in options.items() if key != "costs"),
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


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((0, 4), {"scheme": "ddp_fp16"}),
        ((0, 4), {"scheme": "ddp_fp16", "compressor": "bf16"}),
        ((0, 4), {"scheme": "per_tensor", "compressor": "qsgd(bits=8)"}),
        ((0, 4), {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32)", "memory": "residual"}),
        ((0, 4), FLAT_TOPK),
        ((0, 4), {"scheme": "fused_all", "compressor": "onebit", "memory": "residual"}),
        ((2, 2), BOTH),
        ((2, 2), {"scheme": "ddp", "shards": {"scheme": "per_tensor", "compressor": "qsgd(bits=8,norm=max)"}}),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_sums_over_shards_come_close_and_resume(ranks: Run, shape: Any, options: Options) -> None:
    for distance, equal, stats in ranks(work.beside_native, 4, shape, "", "", options):
        assert equal
        assert 0 <= distance < 0.1
        assert stats["sent_bytes"] == stats["planned_bytes"]
        assert stats["shard_sent_bytes"] == stats["planned_shard_bytes"] > 0
    for weights, memory, replicas in ranks(work.resumed, 4, shape, options):
        assert weights
        assert memory
        assert replicas


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({}, 1),
        ({"scheme": "ddp_fp16", "compressor": "bf16"}, 0.51),
        ({"scheme": "fused_all", "compressor": "qsgd(bits=8)"}, 0.27),
        ({"scheme": "fused_all", "compressor": "fp8"}, 0.27),
        (FLAT | {"scheme": "fused_all"}, 0.17),
    ],
    ids=["ddp", "bf16", "8 bits", "fp8", "4 bits"],
)
def test_what_torch_sends_between_shards_is_what_is_counted(
    ranks: Run, world: int, options: Options, share: float
) -> None:
    dense = ranks(work.on_the_wire, world, {})
    for (sent, stats), (whole, _) in zip(ranks(work.on_the_wire, world, options), dense, strict=True):
        used, unused = ("reduce_scatter_single", "all_to_all_single")[:: -1 if options else 1]
        assert sent[unused] == 0
        assert sent[used] == stats["shard_sent_bytes"] == stats["planned_shard_bytes"] == stats["sent_bytes"] > 0
        assert sent[used] <= share * whole["reduce_scatter_single"]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"scheme": "ddp_fp16"}, TOPK, {"scheme": "per_tensor", "compressor": "qsgd(bits=8)"}, POWERSGD, AUTO],
    ids=["ddp", "fp16", "topk", "qsgd", "powersgd", "auto"],
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


@pytest.mark.parametrize(
    ("shape", "options"), [pytest.param((2, 2), {}, id="ddp"), pytest.param((2, 2), POWERSGD, id="powersgd"), *LEGS]
)
def test_a_bad_number_that_the_script_skips_leaves_no_trace(ranks: Run, shape: Any, options: Options) -> None:
    for seen, changed, same, discarded in ranks(work.bad_number, 4, shape, options):
        assert seen
        assert same
        assert discarded
        assert changed == bool(options)


@pytest.mark.parametrize(("shape", "options"), LEGS)
def test_a_step_with_a_bad_number_keeps_the_memory_as_it_was(ranks: Run, shape: Any, options: Options) -> None:
    results = ranks(work.stepped_with_bad_number, 4, shape, options)
    for same, undone in results:
        assert same
        assert undone


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2, 2), {"scheme": "topk", "density": 0.1}), ((0, 4), FLAT_TOPK), ((2, 2), {**TOPK, "shards": FLAT_TOPK})],
    ids=["replicas", "shards", "both"],
)
def test_an_overflow_is_skipped_and_the_memory_follows_the_scale(ranks: Run, shape: Any, options: Options) -> None:
    for distance, skipped in ranks(work.scaled, 4, shape, options):
        assert skipped
        assert distance < 1e-5


@pytest.mark.parametrize("clear", ["none", "zeros"])
@pytest.mark.parametrize(("shape", "options"), LEGS)
def test_a_gradient_that_is_thrown_away_leaves_no_trace(ranks: Run, shape: Any, options: Options, clear: str) -> None:
    for weights, memory, discarded in ranks(work.thrown_away, 4, shape, options, clear):
        assert weights
        assert memory
        assert discarded


@pytest.mark.parametrize("habit", ["", "accumulated", "no sync", "no all-reduce"])
@pytest.mark.parametrize(("shape", "options"), LEGS)
def test_applied_and_kept_is_what_came_in(ranks: Run, shape: Any, options: Options, habit: str) -> None:
    assert max(ranks(work.mass, 4, shape, options, habit)) < 1e-6


@pytest.mark.parametrize(
    ("world", "shape", "options", "tolerance"),
    [(4, (2, 2), TOPK, 0.0), (2, (0, 2), FLAT, 0.0), (4, (0, 4), FLAT, 1e-6), (4, (2, 2), BOTH, 1e-6)],
    ids=["replicas", "two shards", "shards", "both"],
)
def test_exempt_kinds_are_torchs_averages(
    ranks: Run, world: int, shape: Any, options: Options, tolerance: float
) -> None:
    for apart, stats in ranks(work.exempt, world, shape, options | {"exempt": "vectors, norms"}, tolerance):
        assert "embed.weight" in apart
        assert all(name.endswith("weight") and "norm" not in name for name in apart)
        assert stats["sent_bytes"] == stats["planned_bytes"]
    for apart, _ in ranks(work.exempt, world, shape, options | {"exempt": ["embeddings"]}, tolerance):
        assert "embed.weight" not in apart
        assert "blocks.0.norm.weight" in apart


@pytest.mark.parametrize(
    ("options", "small", "large"),
    [(TOPK, (2, 1), (2, 2)), (FLAT, (0, 2), (0, 4)), (FLAT_TOPK, (2, 1), (0, 4))],
    ids=["replicas", "shards", "flat to replicas"],
)
def test_another_mesh_keeps_the_sum_of_what_was_kept_back(
    ranks: Run, tmp_path: Path, options: Options, small: Any, large: Any
) -> None:
    paths = [str(tmp_path / name) for name in "abc"]
    first = ranks(work.resharded, 4, large, options, "", paths[0])[0]
    second = ranks(work.resharded, 2, small, options, paths[0], paths[1])[0]
    third = ranks(work.resharded, 4, large, options, paths[1], paths[2])[0]
    assert first[1] == second[1] == third[1] == 3
    assert any(bool(kept.any()) for kept in first[0].values())
    for name, kept in first[0].items():
        rounding = 2e-7 * float(kept.abs().max())  # ranks' parts, larger than their sum, are added up in another order
        torch.testing.assert_close(second[0][name], kept, rtol=1e-6, atol=rounding)
        assert torch.equal(third[0][name], second[0][name])
        assert not kept.any() or not torch.equal(third[2][name], third[0][name])


@pytest.mark.parametrize(("shape", "options"), LEGS[1:])
def test_after_detach_torch_exchanges_as_before(ranks: Run, shape: Any, options: Options) -> None:
    assert ranks(work.native_again, 4, shape, options) == [0.0] * 4


@pytest.mark.parametrize(("shape", "options"), [((2, 2), {}), ((0, 4), FLAT_EVERYTHING)], ids=["replicas", "shards"])
def test_evaluation_before_and_between_steps_changes_nothing(ranks: Run, shape: Any, options: Options) -> None:
    assert ranks(work.evaluated_between, 4, shape, options) == [0.0] * 4


@pytest.mark.parametrize(
    ("shape", "options", "key", "value", "word"),
    [
        ((2, 2), TOPK, "shards", 4, "shards=4"),
        ((2, 2), TOPK, "shard", 7, "shard=7"),
        ((2, 2), TOPK, "rank", 7, "rank=7"),
        ((2, 2), TOPK, "scheme", "ddp", "scheme=ddp"),
        ((2, 2), TOPK, "plan", "{}", "plan"),
        ((2, 2), TOPK, "memory", {"other": {}}, "another model"),
        ((0, 4), FLAT, "shards", 8, "shards=8"),
        ((0, 4), FLAT, "shard_sums", "torch", "shard_sums=torch"),
        ((0, 4), FLAT, "options", "[], exempt norm.weight", "exempt norm.weight"),
        ((0, 4), FLAT, "memory", {"head.weight to 9": {}}, "another model"),
    ],
)
def test_a_state_of_another_place_or_exchange_is_refused(
    ranks: Run, shape: Any, options: Options, key: str, value: Any, word: str
) -> None:
    for text in ranks(work.changed_state, 4, shape, options, key, value):
        assert word in text
        assert "\n" not in text


@pytest.mark.parametrize(("shape", "options"), LEGS)
def test_what_cannot_be_exchanged_later_is_said(ranks: Run, shape: Any, options: Options) -> None:
    for text in ranks(work.refused_late, 4, shape, options):
        assert "frozen after attach" in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((0, 4), TOPK, ["topk", "residual of the whole model", 'memory="residual"']),
        ((0, 4), POWERSGD, ["powersgd", "its chunk", "qsgd(bits=8)"]),
        ((0, 4), {"scheme": "oktopk"}, ["oktopk", "one rank", "ddp_fp16"]),
        ((0, 4), {"scheme": "signsgd"}, ["signsgd", "qsgd(bits=8)"]),
        ((0, 4), {"shards": {}}, ["one dimension", "leave shards out"]),
        ((0, 4), {"scheme": "auto"}, ["auto", "per_tensor"]),
        ((2, 2), {"exempt": "bias"}, ["'bias'", "vectors"]),
        ((2, 2), {"shards": TOPK}, ["topk", "residual of the whole model"]),
        ((2, 2), {"shards": "bf16"}, ["shards='bf16'", "mapping"]),
        ((0, 4), {"weights": "topk"}, ["weights=topk", "weights=bf16"]),
        ((0, 4), {"weights": "qsgd(bits=4,shared=True)"}, ["agrees on something first", "weights=bf16"]),
        ((4, 1), {"weights": "bf16"}, ["one shard", "leave weights out"]),
        ((4, 1), {"shards": {"scheme": "ddp_fp16"}}, ["one shard"]),
        ((1, 4), TOPK, ["one replica"]),
        ((2, 2), {"scheme": "auto", "trial_iters": 2}, ["trial_iters=2", "plans every group once", "drop"]),
        ((2, 2), TOPK | {"costs": SLOW}, ["topk", "leave costs out"]),
        ((2, 2), {"scheme": "ssfusion_oi"}, ["ssfusion_oi", "scheme=topk"]),
        ((2, 2), TOPK | {"memory": "dgc"}, ["memory=dgc", "residual"]),
        ((2, 2), TOPK | {"trace": True}, ["trace"]),
        ((2, 2), {"scheme": "per_tensor", "density_warmup": 8}, ["density_warmup", "drop"]),
        ((2, 2), {"scheme": "per_tensor", "dense_steps": 8}, ["dense_steps", "drop"]),
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


@pytest.mark.parametrize(("shape", "options"), LEGS[1:])
def test_every_rank_has_a_state_file_of_its_own(ranks: Run, tmp_path: Path, shape: Any, options: Options) -> None:
    results = ranks(work.saved_files, 4, shape, options, str(tmp_path))
    assert len({name for name, _ in results}) == 4
    assert all(same for _, same in results)


def test_adapters_of_trainers_refuse(ranks: Run) -> None:
    for text in ranks(work.in_an_adapter, 4):
        assert "whole models" in text
        assert "\n" not in text


@pytest.mark.parametrize(("shape", "options"), LEGS[1:])
def test_an_optimizer_made_after_attach_commits_like_the_first(ranks: Run, shape: Any, options: Options) -> None:
    for weights, memory in ranks(work.later_optimizer, 4, shape, options):
        assert weights
        assert memory


def test_an_unknown_form_of_torchs_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"object\.shards of fully_shard in another form"):
        torch_fsdp._expected(object(), "shards")


@pytest.mark.parametrize(("shape", "options"), [((2, 2), TOPK), ((0, 4), FLAT_TOPK)], ids=["replicas", "shards"])
def test_replicas_that_ask_for_different_things_are_refused(ranks: Run, shape: Any, options: Options) -> None:
    for text in ranks(work.disagreeing, 4, shape, options):
        assert "0.05" in text
        assert "0.1" in text
        assert "\n" not in text
