"""What `ssfx.attach` does with a model that `fully_shard` has wrapped: it checks what cannot work, then hooks in."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch.distributed import get_process_group_ranks

from ssfx.collectives.torch_comm import TorchComm
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.runtime.checks import Optimizers, check_arguments, check_held, unwrapped
from ssfx.runtime.lifetime import check_free
from ssfx.runtime.setup import memory_of, model_device, notice_voting_zeros, scheme_options
from ssfx.schemes import Scheme, schemes
from ssfx.schemes.sharded_legs import check_leg
from ssfx.sharded.legs import Leg, ShardSum, weights_leg
from ssfx.sharded.sync import ShardedSync
from ssfx.sharded.torch_fsdp import ShardGroup, groups_of

_REFUSED = {
    "process_group": "the mesh of fully_shard says which ranks exchange",
    "trace": "no timeline is kept",
    "broadcast_buffers": "buffers are made equal once, when attaching",
}


def attach_sharded(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    scheme: str,
    compressor: str | None,
    density: float | None,
    memory: str | None,
    scaler: torch.amp.GradScaler | None,
    seed: int,
    exempt: frozenset[str],
    costs: Costs | None,
    options: dict[str, Any],
    **others: Any,
) -> ShardedSync:
    """Exchange the model's gradients by `scheme` from now on; return the handle. See `ssfx.attach`.

    The scheme is that of the sum over replicas on a mesh of two dimensions, and of the sum over shards on a mesh of
    one. `options["shards"]` says how shards are summed beside replicas: arguments of `attach`, by name.
    `options["weights"]` is the spec of a compressor by which weights are gathered. `costs` are those between replicas,
    for scheme=auto. ConfigError for what cannot work, and for `others` that are not as default.
    """
    for name, value in others.items():
        if value not in (None, name == "broadcast_buffers"):
            raise ConfigError(f"a model of fully_shard takes no {name}: {_REFUSED[name]}; leave {name} out")
    check_free(model)
    found = groups_of(model)
    groups = [group for group in found if group.names]
    options = dict(options)
    sums, gathered_by = options.pop("shards", None), options.pop("weights", None)
    replicas, shards = _process_groups(groups if gathered_by is None else found)
    optimizers = unwrapped(optimizer)
    check_held({name: p for group in groups for name, p in group.parameters()}, optimizers)
    if costs is not None and not schemes[scheme].profiled:
        raise ConfigError(f"scheme={scheme} does not plan by costs; leave costs out, or use scheme=auto")
    asked = {"scheme": scheme, "compressor": compressor, "density": density, "memory": memory}
    if sums is not None and replicas is None:
        raise ConfigError(
            "fully_shard over a mesh of one dimension has one exchange, between shards, which scheme and compressor "
            "say; leave shards out"
        )
    between = None
    if replicas is not None:
        between = Leg(
            groups, *_asked(optimizers, asked, options, False), TorchComm(replicas, model_device(model)), exempt
        )
        if between.scheme.profiled:
            between = between.with_costs(costs)
        options = {}
    summed = None
    if sums is not None or replicas is None:
        if not isinstance(sums, Mapping | None):
            raise ConfigError(f"shards={sums!r} is no mapping; use such as shards={{'scheme': 'ddp_fp16'}}")
        if shards.size() == 1:
            raise ConfigError("the mesh has one shard, so nothing is summed between shards; leave ssfx or shards out")
        if sums is not None:
            sums = dict(sums)
            asked = {key: sums.pop(key, "ddp" if key == "scheme" else None) for key in asked}
            options = sums
        summed = ShardSum(
            groups, *_asked(optimizers, asked, options, True), TorchComm(shards, model_device(model)), exempt
        )
    weights = None
    if gathered_by is not None:
        if shards.size() == 1:
            raise ConfigError("the mesh has one shard, so no weights are gathered; leave weights out")
        weights = weights_leg(found, gathered_by, TorchComm(shards, model_device(model)), exempt)
    first = between or summed
    assert first is not None
    notice_voting_zeros(model, first.given.get("compressor"), first.comm.rank)
    return ShardedSync(
        model, groups, optimizers, replicas=between, shards=summed, weights=weights, scaler=scaler, seed=seed
    )


def _asked(
    optimizers: Optimizers, asked: Mapping[str, Any], options: dict[str, Any], of_shards: bool
) -> tuple[Scheme, dict[str, Any], Memory | None]:
    """Return scheme, options and memory of a leg; ConfigError for those that it does not take."""
    entry = schemes[asked["scheme"]]
    check_arguments(options, [field.name for field in fields(entry.defaults)])
    given = scheme_options(asked["compressor"], asked["density"], options)
    online = entry.online(given)
    memory = asked["memory"]
    check_leg(entry.name, given, memory, of_shards=of_shards)
    if of_shards and memory is None and online.compressor is not None:
        memory = "none"  # a residual of the whole model on every rank is kept where it was asked for
    kept = memory_of(entry, online.compressor, memory, optimizers)
    if kept is not None and (kept.dense_momentum or kept.follows_rate):
        raise ConfigError(f"memory={kept.name} is not kept for shards of fully_shard; use memory=residual")
    return entry, given, kept


def _process_groups(groups: list[ShardGroup]) -> tuple[Any, Any]:
    """Return the process groups of replicas (None without) and of shards; ConfigError if groups differ in them."""
    if any(group.shards is None for group in groups):
        raise ConfigError("a mesh without a dimension of shards holds replicas only; attach to the model without it")
    replicas, shards = groups[0].replicas, groups[0].shards
    ranks = get_process_group_ranks(shards)
    if any(group.replicas is not replicas or get_process_group_ranks(group.shards) != ranks for group in groups):
        raise ConfigError("groups of fully_shard are on different meshes; wrap all modules over one mesh")
    if replicas is not None and replicas.size() == 1:
        raise ConfigError(
            "the mesh has one replica, so nothing is exchanged between replicas; use a mesh of one dimension, or leave "
            "ssfx out"
        )
    return replicas, shards
