"""What `ssfx.attach` does with a model that `fully_shard` has wrapped: it checks what cannot work, then hooks in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError
from ssfx.runtime.ddp_habits import check_arguments
from ssfx.runtime.guards import check_held, unwrapped
from ssfx.runtime.setup import check_free, memory_of, model_device, notice_voting_zeros, scheme_options
from ssfx.schemes import schemes
from ssfx.sharded.sync import ShardedSync
from ssfx.sharded.torch_fsdp import ShardGroup, groups_of

_REFUSED = {
    "process_group": "the mesh of fully_shard says which ranks exchange",
    "costs": "schemes that plan by costs are not taken",
    "trace": "no timeline is kept",
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
    options: dict[str, Any],
    **others: Any,
) -> ShardedSync:
    """Exchange gradient shards between replicas by `scheme` from now on; return the handle. See `ssfx.attach`.

    ConfigError for a mesh of one dimension, for a scheme that plans by costs, and for `others` that are not as default.
    """
    for name, value in others.items():
        if value not in (None, False):
            raise ConfigError(f"a model of fully_shard takes no {name}: {_REFUSED[name]}; leave {name} out")
    check_free(model)
    groups = groups_of(model)
    replicas = _replicas(groups)
    optimizers = unwrapped(optimizer)
    check_held({name: p for group in groups for name, p in group.parameters()}, optimizers)
    entry = schemes[scheme]
    check_arguments(options)
    given = scheme_options(compressor, density, options)
    chosen: Any = entry.options(given)
    if entry.profiled:
        raise ConfigError(
            f"scheme={scheme} plans by ready times and costs, which are not measured under fully_shard; choose a "
            "scheme that plans at once, such as scheme=topk, scheme=powersgd or scheme=ddp_fp16"
        )
    if getattr(chosen, "density_warmup", 0):
        raise ConfigError("the density does not warm up under fully_shard; drop density_warmup")
    kept = memory_of(entry, chosen.compressor, memory, optimizers)
    if kept is not None and (kept.dense_momentum or kept.follows_rate):
        raise ConfigError(f"memory={kept.name} is not kept for shards of fully_shard; use memory=residual")
    comm = Comm(replicas, model_device(model))
    notice_voting_zeros(model, chosen.compressor, comm.rank)
    return ShardedSync(
        model, groups, optimizers, scheme=entry, given=given, memory=kept, scaler=scaler, comm=comm, seed=seed
    )


def _replicas(groups: list[ShardGroup]) -> Any:
    """Return the process group over which every group has its replicas; ConfigError if there is no such group."""
    if any(group.replicas is None for group in groups):
        raise ConfigError(
            "fully_shard over a mesh of one dimension has no replicas to exchange with, and every rank would keep a "
            "residual of the whole model; use a mesh of two dimensions, (replicas, shards), or leave ssfx out"
        )
    if any(group.shards is None for group in groups):
        raise ConfigError("a mesh without a dimension of shards holds replicas only; attach to the model without it")
    replicas = groups[0].replicas
    if any(group.replicas is not replicas or group.shards.size() != groups[0].shards.size() for group in groups):
        raise ConfigError("groups of fully_shard are on different meshes; wrap all modules over one mesh")
    if replicas.size() == 1:
        raise ConfigError("the mesh has one replica, so nothing is exchanged between replicas; leave ssfx out")
    return replicas
