"""What the ranks run: a sharded model with ssfx beside the same one with torch's own exchange."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from runtime.work_guards import error_of
from sharded.models import adam, build, loss_of, mesh_of, shards_of
from torch import nn
from torch.distributed.fsdp import FSDPModule

import ssfx
from ssfx.advice.sharded_steps import Asked, Others, plan_sharded, sent_bytes
from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import Sharding
from ssfx.runtime.integrations.state_files import load_state, save_state

Options = dict[str, Any]
Shape = tuple[int, int]
"""Replicas, 0 for a mesh of one dimension, and shards."""


def _step(model: Any, optimizer: Any, rank: int, step: int, habit: str) -> None:
    optimizer.zero_grad()
    if habit == "checkpointed":
        for block in model.blocks:
            block.checkpointed = True
    passes = 1 if habit in ("", "clip", "checkpointed", "compiled", "compiled whole", "undivided") else 3
    for part in range(passes):
        if habit == "no sync":
            model.set_requires_gradient_sync(part == passes - 1)
        if habit == "no all-reduce":
            model.set_requires_all_reduce(part == passes - 1)
        (loss_of(model, rank, 10 * step + part) / passes).backward()
    if habit == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()


def compile_as(habit: str, *models: Any) -> None:
    """Compile the blocks of models or the models as wholes, where the habit is that."""
    for model in models:
        parts = {"compiled": model.blocks, "compiled whole": [model]}.get(habit, [])
        for part in parts:
            part.compile(backend="eager")


def _twins(shape: Shape, sgd_lr: float | None = None) -> tuple[Any, ...]:
    """Return a mesh, two equal models on it and an optimizer for each: Adam, or SGD at a rate."""
    mesh = mesh_of(*shape)
    models = build(mesh), build(mesh)
    made = (adam(one) if sgd_lr is None else torch.optim.SGD(one.parameters(), lr=sgd_lr) for one in models)
    return mesh, *models, *made


def _distance(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(shards_of(a), shards_of(b), strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs if x.numel())


def _equal_replicas(model: nn.Module, mesh: Any, shape: Shape) -> bool:
    if not shape[0]:
        return True
    group, same = mesh.get_group("replicas"), True
    for mine in shards_of(model):
        first = mine.clone()
        dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
        same &= torch.equal(first, mine)
    return same


def beside_native(
    group: Any, rank: int, world: int, shape: Shape, habit: str, precision: str, options: Options
) -> tuple[float, bool, dict[str, Any]]:
    """Train with ssfx and without; return the largest difference of weights, whether replicas agree, and stats."""
    mesh = mesh_of(*shape)
    model, twin = build(mesh, precision), build(mesh, precision)
    compile_as(habit, model, twin)
    if habit == "undivided":
        for part in (*model.modules(), *twin.modules()):
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(2.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo has no other sums with a factor
    mine, theirs = adam(model), adam(twin)
    sync = ssfx.attach(model, mine, **options)
    for step in range(4):
        _step(model, mine, rank, step, habit)
        _step(twin, theirs, rank, step, habit)
    stats = sync.stats()
    sync.detach()
    return _distance(model, twin), _equal_replicas(model, mesh, shape), stats


def _memory(sync: Any) -> dict[str, torch.Tensor]:
    state = sync.state_dict()["memory"]
    return {f"{name} {key}": value for name, held in state.items() for key, value in held.items()}


def _equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def resumed(group: Any, rank: int, world: int, shape: Shape, options: Options) -> tuple[bool, bool, bool]:
    """Stop after 3 of 6 steps, go on in new objects; return whether weights, memory and replicas are equal."""
    mesh = mesh_of(*shape)
    whole, first, second = build(mesh), build(mesh), build(mesh)
    optimizers = [adam(model) for model in (whole, first, second)]
    sync = ssfx.attach(whole, optimizers[0], **options)
    for step in range(6):
        _step(whole, optimizers[0], rank, step, "")
    cut = ssfx.attach(first, optimizers[1], **options)
    for step in range(3):
        _step(first, optimizers[1], rank, step, "")
    state = cut.state_dict()
    cut.detach()
    again = ssfx.attach(second, optimizers[2], **options)
    second.load_state_dict(first.state_dict())
    optimizers[2].load_state_dict(optimizers[1].state_dict())
    again.load_state_dict(state)
    for step in range(3, 6):
        _step(second, optimizers[2], rank, step, "")
    found = _distance(whole, second) == 0, _equal(_memory(sync), _memory(again)), _equal_replicas(second, mesh, shape)
    sync.detach()
    again.detach()
    return found


def stepped_with_bad_number(group: Any, rank: int, world: int, shape: Shape, options: Options) -> tuple[bool, int]:
    """Step with NaN, as torch would; return whether the memory is finite and as before where NaN was, and undone."""
    model = build(mesh_of(*shape))
    optimizer = adam(model)
    sync = ssfx.attach(model, optimizer, **options)
    _step(model, optimizer, rank, 0, "")
    optimizer.zero_grad()
    (loss_of(model, rank, 1) * (float("nan") if rank == 0 else 1.0)).backward()
    before = _memory(sync)
    optimizer.step()
    same = _equal(before, _memory(sync)) and all(bool(torch.isfinite(value).all()) for value in before.values())
    undone = int(sync.stats()["undone_exchanges"])
    sync.detach()
    return same, undone


def scaled(group: Any, rank: int, world: int, shape: Shape, options: Options) -> tuple[float, bool]:
    """Train with a loss scale that overflows at first, beside no scale; return the distance and whether it skipped."""
    _, model, twin, mine, theirs = _twins(shape, 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, backoff_factor=2.0**-120)
    sync, other = ssfx.attach(model, mine, scaler=scaler, **options), ssfx.attach(twin, theirs, **options)
    for step in (0, 0, 1, 2):
        mine.zero_grad()
        scaler.scale(100 * loss_of(model, rank, step)).backward()
        scaler.step(mine)
        scaler.update()
    for step in (0, 1, 2):
        theirs.zero_grad()
        (100 * loss_of(twin, rank, step)).backward()
        theirs.step()
    skipped = scaler.get_scale() < 2.0**100
    found = _distance(model, twin), skipped and sync.stats()["steps"] == 3
    sync.detach()
    other.detach()
    return found


def kept_everywhere(kept: Any, name: str, mesh: Any, shape: Shape) -> torch.Tensor:
    """Return what all ranks keep of this rank's shard of a parameter, as a part of the average."""
    left: Any = 0.0
    sent = {to: held["residual"] for to in range(shape[1]) if (held := kept.get(f"{name} to {to}")) is not None}
    if sent:  # of nodes that sum first, to the ranks of equal local index alone
        nothing = torch.zeros_like(next(iter(sent.values())))
        chunks = torch.stack([sent.get(to, nothing) for to in range(shape[1])])
        shards = mesh.get_group("shards") if shape[0] else mesh.get_group()
        dist.all_reduce(chunks, group=shards)
        left = chunks[dist.get_rank(shards)] / shape[1]
    if name in kept:
        left = left + kept[name]["residual"]
    if shape[0]:
        dist.all_reduce(left, group=mesh.get_group("replicas"))
        left = left / shape[0]
    return left


def native_again(group: Any, rank: int, world: int, shape: Shape, options: Options) -> float:
    """Attach and detach; return how far training is then from a model that never was attached."""
    _, model, twin, mine, theirs = _twins(shape)
    ssfx.attach(model, mine, **options).detach()
    sync = ssfx.attach(model, mine, scheme="ddp")
    sync.detach()
    for step in range(3):
        _step(model, mine, rank, step, "")
        _step(twin, theirs, rank, step, "")
    return _distance(model, twin)


def changed_state(group: Any, rank: int, world: int, shape: Shape, options: Options, key: str, value: Any) -> str:
    """Return the text with which a state is refused whose `key` is `value`."""
    model = build(mesh_of(*shape))
    sync = ssfx.attach(model, adam(model), **options)
    text = error_of(lambda: sync.load_state_dict(sync.state_dict() | {key: value}))
    sync.detach()
    return text


def saved_files(group: Any, rank: int, world: int, shape: Shape, options: Options, folder: str) -> tuple[str, bool]:
    """Save and load a state beside a checkpoint; return the file's name and whether the memory came back."""
    model = build(mesh_of(*shape))
    optimizer = adam(model)
    sync = ssfx.attach(model, optimizer, **options)
    _step(model, optimizer, rank, 0, "")
    path, before = save_state(sync, folder), _memory(sync)
    _step(model, optimizer, rank, 1, "")
    changed = not _equal(before, _memory(sync))
    load_state(sync, folder)
    same = changed and _equal(before, _memory(sync))
    sync.detach()
    return path.name, same


def script(group: Any, rank: int, world: int, source: str) -> tuple[list[torch.Tensor], bool]:
    """Run a user's script; return this rank's weights at its end, and whether replicas are equal."""
    names: dict[str, Any] = {}
    exec(compile(source, "script", "exec"), names)
    return shards_of(names["model"]), _equal_replicas(names["model"], names["mesh"], (2, 2))


GIVEN = {
    "all_gather_single": lambda given, world: given * (world - 1),
    "reduce_scatter_single": lambda given, world: given * (world - 1) // world,
    "all_to_all_single": lambda given, world: given * (world - 1) // world,
    "all_reduce": lambda given, world: 2 * given * (world - 1) // world,
}
"""Collectives of torch, and what a rank sends of what it brings, by the convention of all traffic here."""
OLD_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
"""What torch before 2.14 calls them, where they are called otherwise."""


@contextmanager
def counted(*names: str) -> Iterator[dict[str, int]]:
    """Inside the block, bytes that collectives of torch of these names send to other ranks are added up by name."""
    sent = dict.fromkeys(names, 0)
    here = {name: name if hasattr(dist, name) else OLD_NAMES[name] for name in names}
    natives = {name: getattr(dist, here[name]) for name in names}

    def noted(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            first = 0 if name == "all_reduce" else 1
            given = next((kwargs[key] for key in ("input", "input_tensor", "tensor") if key in kwargs), None)
            given = args[first] if given is None else given
            sent[name] += GIVEN[name](given.numel() * given.element_size(), dist.get_world_size(kwargs.get("group")))
            return natives[name](*args, **kwargs)

        return call

    for name in names:
        setattr(dist, here[name], noted(name))
    try:
        yield sent
    finally:
        for name, native in natives.items():
            setattr(dist, here[name], native)


def on_the_wire(group: Any, rank: int, world: int, options: Options) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the bytes that torch was given for other ranks in a backward pass on a flat mesh, and stats."""
    model = build(mesh_of(0, world))
    sync = ssfx.attach(model, adam(model), **options)
    with counted("all_to_all_single", "reduce_scatter_single") as sent:
        loss_of(model, rank, 0).backward()
    stats = sync.stats()
    sync.detach()
    return sent, stats


def _kept_everywhere(sync: Any, model: nn.Module, mesh: Any, shape: Shape) -> dict[str, torch.Tensor]:
    """Return what all ranks keep of every whole parameter, as a part of the average."""
    kept, total = sync.state_dict()["memory"], {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            local = kept_everywhere(kept, name, mesh, shape)[: p.to_local().shape[0]]
            parts: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(parts, local)
            total[name] = torch.cat(parts[: shape[1]])
    return total


def resharded(
    group: Any, rank: int, world: int, shape: Shape, options: Options, loaded: str, saved: str
) -> tuple[dict[str, torch.Tensor], int, dict[str, torch.Tensor]]:
    """Load a checkpoint, or train, and save; return what is kept of whole parameters and steps, then after a step."""
    mesh = mesh_of(*shape)
    model = build(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = ssfx.attach(model, optimizer, **options)
    if loaded:
        checkpoint.load({"ssfx": sync.for_checkpoint()}, checkpoint_id=loaded)
    else:
        for step in range(3):
            _step(model, optimizer, rank, step, "")
    kept, steps = _kept_everywhere(sync, model, mesh, shape), int(sync.stats()["steps"])
    checkpoint.save({"ssfx": sync.for_checkpoint()}, checkpoint_id=saved)
    _step(model, optimizer, rank, 3, "")
    after = _kept_everywhere(sync, model, mesh, shape)
    sync.detach()
    return kept, steps, after


def exempt(
    group: Any, rank: int, world: int, shape: Shape, options: Options, tolerance: float
) -> tuple[set[str], dict[str, Any]]:
    """Return the parameters whose averages differ by more from torch's on any rank, and stats."""
    mesh = mesh_of(*shape)
    model, twin = build(mesh), build(mesh)
    sync = ssfx.attach(model, adam(model), **options)
    for one in (model, twin):
        loss_of(one, rank, 0).backward()
    differ = set()
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        if a.grad is not None and not torch.allclose(a.grad.to_local(), b.grad.to_local(), rtol=0, atol=tolerance):
            differ.add(name)
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, differ)
    stats = sync.stats()
    sync.detach()
    return set().union(*everyone), stats


def simulated_beside_sent(
    group: Any, rank: int, world: int, shape: Shape, precision: str, resharded: bool, options: Options
) -> tuple[dict[str, int], int, int]:
    """Return what torch was given for other ranks in a step, by collective, what is simulated of it, and by ssfx.

    Of the step without ssfx if there are no `options`.
    """
    mesh = mesh_of(*shape)
    whole = {} if resharded else {"reshard_after_forward": False}  # left out, it is True for all but the root
    model = build(mesh, precision, frozen=False, **whole)
    sync = ssfx.attach(model, adam(model), **options) if options else None
    with counted(*GIVEN) as sent:
        loss_of(model, rank, 0).backward()
    of_ssfx = int(sync.stats()["sent_bytes"]) if sync is not None else 0
    if sync is not None:
        sync.detach()
    return sent, _simulated_bytes(model, shape, precision, resharded, options, rank), of_ssfx


def _simulated_bytes(
    model: nn.Module, shape: Shape, precision: str, resharded: bool, options: Options, rank: int
) -> int:
    """Return the bytes that a simulated step says a rank sends."""
    tensors = tuple(TensorSpec(name, tuple(p.shape)) for name, p in reversed(list(model.named_parameters())))
    profile = Profile("own", tensors, (1e-3,) * len(tensors), 1e-3, Origin("nominal"))
    replicas, shards = max(1, shape[0]), shape[1]
    sharding = Sharding(
        "hsdp" if shape[0] else "fsdp",
        shards,
        replicas,
        "bfloat16" if precision else "float32",
        "bfloat16" if precision == "bf16 reduced" else "float32",
        resharded,
    )
    given = dict(options)
    shard_sums, others = given.pop("shards", {}), Others(given.pop("weights", None), given.pop("exempt", ()))

    def asked(one: Options) -> Asked:
        rest = {key: value for key, value in one.items() if key not in ("scheme", "memory")}
        return Asked(one.get("scheme", "ddp"), rest, one.get("memory"))

    found = plan_sharded(profile, sharding, asked(given), asked(shard_sums), others)
    return sent_bytes(found, rank)
