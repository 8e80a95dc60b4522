"""Gathers of weights in fewer bits: equal on all ranks, in bytes as planned, and the sharded weights stay exact."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from runtime.ranks import each_rank
from sharded import work
from sharded.conftest import Run
from sharded.models import Transformer, adam, build, loss_of, mesh_of, shards_of
from sharded.work import Options, Shape, _distance, _equal_replicas, _step, compile_as, counted
from torch.distributed.fsdp import FSDPModule, fully_shard

import ssfx
from ssfx.core.errors import ConfigError

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
    for found in ranks(gathered, world, shape, weights, False, {}):
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
    for found in ranks(gathered, 4, (0, 4), EIGHT, True, {"exempt": "vectors,norms"}):
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
@each_rank(4, by="ranks")
def test_training_comes_close_and_replicas_stay_equal(group, rank, world, habit, shape, options):
    mesh = mesh_of(*shape)
    model, twin = build(mesh), build(mesh)
    compile_as(habit, model, twin)
    mine, theirs = adam(model), adam(twin)
    sync = ssfx.attach(model, mine, **options)
    for step in range(4):
        _step(model, mine, rank, step, habit)
        _step(twin, theirs, rank, step, habit)
    sync.detach()
    assert _equal_replicas(model, mesh, shape)
    assert 0 < _distance(model, twin) < 0.1


@pytest.mark.parametrize("weights", [EIGHT, RANDOM])
@pytest.mark.parametrize("shape", [(0, 4), (2, 2)])
def test_a_resumed_run_is_exact_and_evaluation_changes_nothing(ranks: Run, shape: Any, weights: str) -> None:
    options = {"scheme": "ddp", "weights": weights}
    for same, memory, replicas in ranks(work.resumed, 4, shape, options):
        assert same
        assert memory
        assert replicas
    for distance, low in ranks(evaluated, 4, shape, options):
        assert distance == 0
        assert low


def test_a_state_of_other_weights_is_refused(ranks: Run) -> None:
    for text in ranks(work.changed_state, 4, (0, 4), {"scheme": "ddp", "weights": EIGHT}, "weights", "bf16"):
        assert "weights=bf16" in text
        assert "\n" not in text


def test_checkpoints_hold_the_exact_weights_and_detach_gathers_them(ranks: Run, tmp_path: Path) -> None:
    options = {"scheme": "ddp", "weights": EIGHT}
    assert ranks(saved, 4, (0, 4), options, str(tmp_path)) == [(True, True)] * 4
    assert ranks(work.native_again, 4, (2, 2), options) == [0.0] * 4


@pytest.mark.parametrize(
    ("built", "word"), [({"reshard_after_forward": 2}, "reshard_after_forward is a number"), ({}, "several dtypes")]
)
def test_what_torch_alone_can_gather_is_refused_in_one_line(ranks: Run, built: Any, word: str) -> None:
    for text in ranks(refusal, 4, built):
        assert word in text
        assert "leave weights out" in text
        assert "\n" not in text


# ---- on each rank ---------------------------------------------------------------------------------------------------


def _parts(model: Any) -> list[Any]:
    return [part for part in model.modules() if isinstance(part, FSDPModule)]


def _whole(model: Any) -> dict[str, torch.Tensor]:
    """Return whole weights as torch gathers them, without padding."""
    for part in _parts(model):
        part.unshard()
    found = {name: p.detach().clone() for name, p in model.named_parameters()}
    for part in _parts(model):
        part.reshard()
    return found


def _exact(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().full_tensor() for name, p in model.named_parameters()}


def gathered(
    group: Any, rank: int, world: int, shape: Shape, weights: str, frozen: bool, options: Options
) -> dict[str, Any]:
    """Return what one gather of all weights brings: whether ranks agree, the errors, the bytes, and what is exact."""
    model = build(mesh_of(*shape))
    model.blocks[0].requires_grad_(not frozen)
    before = shards_of(model)
    sync = ssfx.attach(model, adam(model), scheme="ddp", weights=weights, **options)
    with counted("all_gather_single") as sent:
        found = _whole(model)
    exact = _exact(model)
    equal = True
    for value in found.values():
        everyone = [torch.empty_like(value) for _ in range(world)]
        dist.all_gather(everyone, value)
        equal &= all(torch.equal(one, value) for one in everyone)
    stats = sync.stats()
    sync.detach()
    again = _whole(model)
    with counted("all_gather_single") as native:
        _whole(model)
    return {
        "equal": equal,
        "errors": {name: float((value - exact[name]).abs().max()) for name, value in found.items()},
        "rounded": {name: torch.equal(value, exact[name].bfloat16().float()) for name, value in found.items()},
        "largest": {name: float(value.abs().max()) for name, value in exact.items()},
        "sent": sent["all_gather_single"],
        "native": native["all_gather_single"],
        "stats": stats,
        "masters": all(torch.equal(a, b) for a, b in zip(before, shards_of(model), strict=True)),
        "torch again": all(torch.equal(again[name], exact[name]) for name in exact),
    }


def evaluated(group: Any, rank: int, world: int, shape: Shape, options: Options) -> tuple[float, bool]:
    """Evaluate one of two models between steps; return their distance, and whether evaluation saw the fewer bits."""
    mesh = mesh_of(*shape)
    model, twin = build(mesh), build(mesh)
    mine, theirs = adam(model), adam(twin)
    sync, other = ssfx.attach(model, mine, **options), ssfx.attach(twin, theirs, **options)
    for step in range(3):
        _step(model, mine, rank, step, "")
        _step(twin, theirs, rank, step, "")
        with torch.no_grad():
            low = float(loss_of(model, rank, 50))
        model.reshard()
    sync.detach()
    other.detach()
    with torch.no_grad():
        exact = float(loss_of(model, rank, 50))
    model.reshard()
    return _distance(model, twin), low != exact


def saved(group: Any, rank: int, world: int, shape: Shape, options: Options, folder: str) -> tuple[bool, bool]:
    """Save a model in training by torch.distributed.checkpoint; return whether file and loaded weights are exact."""
    model, other = build(mesh_of(*shape)), build(mesh_of(*shape))
    optimizer = adam(model)
    sync = ssfx.attach(model, optimizer, **options)
    _step(model, optimizer, rank, 0, "")
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder)
    _step(other, adam(other), rank, 5, "")
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    other.load_state_dict(state["model"])
    differ = _distance(model, other)
    sync.detach()
    whole = _whole(model)
    return differ == 0, all(torch.equal(whole[name], value) for name, value in _exact(model).items())


def refusal(group: Any, rank: int, world: int, built: Options) -> str:
    """Return the text with which fewer bits are refused for a model that is wrapped in another way."""
    model: Any = Transformer()
    model.norm.bias.requires_grad_(False)
    if not built:
        model.norm.bias.data = model.norm.bias.data.half()
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh_of(0, world), **built)
    try:
        ssfx.attach(model, adam(model), scheme="ddp", weights="bf16")
    except ConfigError as error:
        return str(error)
    return ""
