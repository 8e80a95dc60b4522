"""What the ranks run: gathers of weights in fewer bits, beside the exact weights of the shards."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from sharded.models import Transformer, adam, build, loss_of, mesh_of, shards_of
from sharded.work import Options, Shape, _distance, _equal_replicas, _step, compile_as, counted
from torch.distributed.fsdp import FSDPModule, fully_shard

import ssfx
from ssfx.core.errors import ConfigError


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


def trained(group: Any, rank: int, world: int, shape: Shape, habit: str, options: Options) -> tuple[float, bool]:
    """Train with fewer bits beside torch; return the distance of weights and whether replicas agree."""
    mesh = mesh_of(*shape)
    model, twin = build(mesh), build(mesh)
    compile_as(habit, model, twin)
    mine, theirs = adam(model), adam(twin)
    sync = ssfx.attach(model, mine, **options)
    for step in range(4):
        _step(model, mine, rank, step, habit)
        _step(twin, theirs, rank, step, habit)
    sync.detach()
    return _distance(model, twin), _equal_replicas(model, mesh, shape)


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
