"""How a model is shared among ranks: sharding=fsdp|hsdp and the keys beside it, checked against a cluster."""

from dataclasses import replace
from typing import Any

from ssfx.compressors import build
from ssfx.config.components import Components
from ssfx.config.schema import Settings
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.mesh import shards_of
from ssfx.planning.sharding import DTYPES, Sharding
from ssfx.schemes.sharded_legs import check_weights

SHARDING_KEYS = ("sharding", "shards", "reduce_dtype", "reshard_after_forward", "shard_compressor", "weights", "exempt")


def shared_model(settings: Settings, cluster: Cluster, engine: str = "simulate") -> Sharding | None:
    """Return how `settings` share a model among the ranks of a cluster, None where they do not.

    ConfigError, naming both options and the nearest that works, for what cannot be.
    """
    if settings.sharding == "none":
        _refuse_without(settings)
        return None
    if engine != "simulate":
        # Keys of a run that trains a whole model only.
        refused = {"trace": True, "time_compute_only": True, "precision": "fp16"}
        for key, value in refused.items():
            if getattr(settings, key) == value:
                text = str(value).lower() if value is True else value
                raise ConfigError(
                    f"{key}={text} is of runs that train whole models, and sharding={settings.sharding} shares one "
                    f"among ranks; {'use precision=bf16' if key == 'precision' else f'drop {key}'}"
                )
    if settings.weights is not None:
        check_weights(settings.weights)
    if settings.shard_compressor is not None:
        if settings.sharding == "fsdp":
            raise ConfigError(
                f"shard_compressor={settings.shard_compressor} is for sharding=hsdp, beside what scheme says of "
                f"replicas; with sharding=fsdp use scheme=fused_all 'compressor={settings.shard_compressor}'"
            )
        build(settings.shard_compressor)
    shards = shards_of(cluster, settings.sharding, settings.shards)
    return Sharding(
        settings.sharding,
        shards,
        cluster.world_size // shards,
        DTYPES[settings.precision],
        DTYPES[settings.reduce_dtype],
        settings.reshard_after_forward,
    )


def _refuse_without(settings: Settings) -> None:
    """Raise ConfigError for the first key of sharded models that was given without sharding."""
    if settings.shards is not None:
        raise ConfigError(
            f"shards={settings.shards} shares nothing with sharding=none; use sharding=hsdp shards={settings.shards}, "
            "or drop shards"
        )
    if settings.shard_compressor is not None:
        raise ConfigError(
            f"shard_compressor={settings.shard_compressor} sums over shards, and sharding=none has none; use "
            f"sharding=hsdp, or 'compressor={settings.shard_compressor}' with scheme=fused_all"
        )
    if settings.weights is not None:
        raise ConfigError(
            f"weights={settings.weights} gathers weights of sharded models, and sharding=none has none; use "
            "sharding=fsdp, or drop weights"
        )
    if settings.reduce_dtype != "fp32":
        raise ConfigError(
            f"reduce_dtype={settings.reduce_dtype} is of sharded models, and sharding=none has none; use "
            f"sharding=fsdp, or scheme=ddp_fp16 compressor={settings.reduce_dtype}"
        )
    if not settings.reshard_after_forward:
        raise ConfigError(
            "reshard_after_forward=false is of sharded models, and sharding=none has none; use sharding=fsdp, or drop "
            "reshard_after_forward"
        )


def with_memory(parts: Components, shared: Sharding | None, *, asked: bool) -> Components:
    """Return `parts` without a memory of the sum over shards, as `attach` has none there unless `asked` for it."""
    if shared is None or shared.kind == "hsdp" or asked or parts.memory is None:
        return parts
    return replace(parts, memory="none")


def of_case(settings: Settings, shared: Sharding | None) -> dict[str, Any]:
    """Return the fields of a case that say how its model is shared, and what travels as it is."""
    if shared is None:
        return {"exempt": settings.exempt}
    return {
        "exempt": settings.exempt,
        "weights": settings.weights,
        "sharding": shared.kind,
        "shards": shared.shards,
        "reduce_dtype": settings.reduce_dtype,
        "reshard_after_forward": shared.reshard_after_forward,
        "shard_compressor": settings.shard_compressor,
    }
