"""What `ssfx.attach` promises for `fully_shard`: torch's results where nothing is left out, and bytes as planned."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime.ranks import each_rank
from sharded import work
from sharded.conftest import Run
from sharded.models import adam, build, loss_of, mesh_of
from sharded.work import _distance, _equal, _memory, _step, _twins, kept_everywhere
from torch import nn

import ssfx
from ssfx.config.compose import compose
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_of

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
NODES: Options = {
    "scheme": "ddp_quantized",
    "compressor": "qsgd(bits=4,bucket=32)",
    "memory": "residual",
    "ranks_per_node": 2,
}
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
@each_rank(4, by="ranks")
def test_a_gradient_that_is_set_to_zeros_leaves_nothing_behind(group, rank, world, shape, options):
    """Gradients of one weight are set to zeros in place in two of four steps: none of them is kept."""
    mesh, model, twin, mine, theirs = _twins(shape, 0.0)
    sync = ssfx.attach(model, mine, **options)
    held = next(name for name, p in model.named_parameters() if p.dim() > 1)
    applied = native = torch.zeros(())
    for step in range(4):
        sums = []
        for one, optimizer in ((model, mine), (twin, theirs)):
            optimizer.zero_grad()
            loss_of(one, rank, step).backward()
            grad = one.get_parameter(held).grad
            assert grad is not None
            if step in (0, 2):
                grad.zero_()
            sums.append(grad.to_local().clone())
            optimizer.step()
        applied, native = applied + sums[0], native + sums[1]
    left = kept_everywhere(sync.state_dict()["memory"], held, mesh, shape)[: native.shape[0]]
    sync.detach()
    assert (float((applied + left - native).abs().max()) if native.numel() else 0.0) < 1e-5


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
        {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32,norm=max,rotate=32)"},
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
        ((0, 4), NODES),
        ((0, 4), {"scheme": "ddp_bf16", "ranks_per_node": 2}),
        ((0, 4), {"scheme": "ddp_quantized", "compressor": "qsgd(norm=max)"}),
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


@each_rank(4, by="ranks")
def test_nothing_of_the_replicas_travels_beside_what_is_counted(group, rank, world):
    options = TOPK
    model = build(mesh_of(2, 2))
    sync = ssfx.attach(model, adam(model), **options)
    sizes, native = set(), dist.all_reduce

    def noted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.add(dist.get_world_size(kwargs.get("group")))
        return native(tensor, *args, **kwargs)

    dist.all_reduce = noted
    try:
        loss_of(model, rank, 0).backward()
    finally:
        dist.all_reduce = native
    counted = sync.stats()["sent_bytes"] == sync.stats()["planned_bytes"]
    sync.detach()
    assert sizes == {1}
    assert bool(counted)


@pytest.mark.parametrize(
    ("shape", "options"), [pytest.param((2, 2), {}, id="ddp"), pytest.param((2, 2), POWERSGD, id="powersgd"), *LEGS]
)
@each_rank(4, by="ranks")
def test_a_bad_number_that_the_script_skips_leaves_no_trace(group, rank, world, shape, options):
    """One rank's loss is NaN in a step that the script skips by the norm; then training goes on."""
    _, model, clean, mine, theirs = _twins(shape)
    sync, other = ssfx.attach(model, mine, **options), ssfx.attach(clean, theirs, **options)
    for step in range(2):
        _step(model, mine, rank, step, "")
        _step(clean, theirs, rank, step, "")
    before = _memory(sync)
    mine.zero_grad()
    (loss_of(model, rank, 90) * (float("nan") if rank == 1 else 1.0)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    seen = not bool(torch.isfinite(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
    _step(model, mine, rank, 3, "")
    _step(clean, theirs, rank, 3, "")
    same = _distance(model, clean) == 0 and _equal(_memory(sync), _memory(other))
    changed = not _equal(before, _memory(sync))
    discarded = int(sync.stats()["discarded_exchanges"])
    sync.detach()
    other.detach()
    assert seen
    assert same
    assert discarded
    assert changed == bool(options)


@pytest.mark.parametrize(("shape", "options"), [*LEGS, pytest.param((0, 4), NODES, id="nodes")])
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
@each_rank(4, by="ranks")
def test_a_gradient_that_is_thrown_away_leaves_no_trace(group, rank, world, shape, options, clear):
    _, model, twin, mine, theirs = _twins(shape)
    sync, other = ssfx.attach(model, mine, **options), ssfx.attach(twin, theirs, **options)
    for step in range(4):
        if step == 2:
            mine.zero_grad()
            loss_of(model, rank, 77).backward()
            mine.zero_grad(set_to_none=clear == "none")
            if clear == "zeros":
                loss_of(model, rank, 10 * step).backward()
                mine.step()
                _step(twin, theirs, rank, step, "")
                continue
        _step(model, mine, rank, step, "")
        _step(twin, theirs, rank, step, "")
    same, discarded = _equal(_memory(sync), _memory(other)), int(sync.stats()["discarded_exchanges"])
    sync.detach()
    other.detach()
    assert _distance(model, twin) == 0
    assert same
    assert discarded


@pytest.mark.parametrize("habit", ["", "accumulated", "no sync", "no all-reduce"])
@pytest.mark.parametrize(("shape", "options"), [*LEGS, pytest.param((0, 4), NODES, id="nodes")])
@each_rank(4, by="ranks")
def test_applied_and_kept_is_what_came_in(group, rank, world, shape, options, habit):
    """Weights must not move for gradients to be comparable, so the optimizer's rate is 0 and `.grad` is added up."""
    mesh, model, twin, mine, theirs = _twins(shape, 0.0)
    sync = ssfx.attach(model, mine, **options)
    applied: dict[str, torch.Tensor] = {}
    native: dict[str, torch.Tensor] = {}
    for step in range(3):
        for one, optimizer, total in ((model, mine, applied), (twin, theirs, native)):
            _step(one, optimizer, rank, step, habit)
            for name, p in one.named_parameters():
                if p.grad is not None:
                    total[name] = total.get(name, 0) + p.grad.to_local().clone()
    kept = sync.state_dict()["memory"]
    worst = 0.0
    for name, total in native.items():
        left = kept_everywhere(kept, name, mesh, shape)[: total.shape[0]]
        if total.numel():
            worst = max(worst, float((applied[name] + left - total).abs().max()))
    sync.detach()
    assert worst < 1e-6


@pytest.mark.parametrize(
    ("world", "shape", "options", "tolerance"),
    [
        (4, (2, 2), TOPK, 0.0),
        (2, (0, 2), FLAT, 0.0),
        (4, (0, 4), FLAT, 1e-6),
        (4, (0, 4), NODES, 1e-6),
        (4, (2, 2), BOTH, 1e-6),
    ],
    ids=["replicas", "two shards", "shards", "nodes", "both"],
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
    [(TOPK, (2, 1), (2, 2)), (FLAT, (0, 2), (0, 4)), (FLAT_TOPK, (2, 1), (0, 4)), (NODES, (0, 2), (0, 4))],
    ids=["replicas", "shards", "flat to replicas", "nodes"],
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
@each_rank(4, by="ranks")
def test_evaluation_before_and_between_steps_changes_nothing(group, rank, world, shape, options):
    _, model, twin, mine, theirs = _twins(shape)
    with torch.no_grad():
        loss_of(model, rank, 50)
    sync = ssfx.attach(model, mine, **options)
    for step in range(3):
        _step(model, mine, rank, step, "")
        with torch.no_grad():
            loss_of(model, rank, 50)
        model.reshard()
        _step(twin, theirs, rank, step, "")
    sync.detach()
    assert _distance(model, twin) == 0.0


@pytest.mark.parametrize(("shape", "options"), LEGS[1:])
def test_every_rank_has_a_state_file_of_its_own(ranks: Run, tmp_path: Path, shape: Any, options: Options) -> None:
    results = ranks(work.saved_files, 4, shape, options, str(tmp_path))
    assert len({name for name, _ in results}) == 4
    assert all(same for _, same in results)


@pytest.mark.parametrize(("shape", "options"), LEGS[1:])
@each_rank(4, by="ranks")
def test_an_optimizer_made_after_attach_commits_like_the_first(group, rank, world, shape, options):
    mesh = mesh_of(*shape)
    model, twin = build(mesh), build(mesh)
    first, theirs = adam(model), adam(twin)
    sync, other = ssfx.attach(model, first, **options), ssfx.attach(twin, theirs, **options)
    second = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(3):
        _step(model, second, rank, step, "")
        _step(twin, theirs, rank, step, "")
    same = _equal(_memory(sync), _memory(other))
    sync.detach()
    other.detach()
    assert _distance(model, twin) == 0
    assert same
