"""What engine=virtual takes and refuses: engine.ranks, and nothing that is about times or about sharded models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ssfx.config.schema import Settings
from ssfx.core import machine
from ssfx.core.case import Case, Device
from ssfx.core.errors import ConfigError
from ssfx.lab.workloads import check_case
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.target import target_of

_RANKS = "engine.ranks="


def split_ranks(words: Iterable[str]) -> tuple[list[str], int]:
    """Return the other words, and the ranks that shall train in place of all of the cluster; 0: as many."""
    words = list(words)
    found = [word.removeprefix(_RANKS) for word in words if word.startswith(_RANKS)]
    if not found:
        return words, 0
    if len(found) > 1 or not found[0].isdecimal() or int(found[0]) < 2:
        raise ConfigError(f"engine.ranks is one whole number of at least 2, got {','.join(found)}")
    if "engine=virtual" not in words:
        raise ConfigError(f"engine.ranks={found[0]} is for engine=virtual; add it, or use world_size={found[0]}")
    return [word for word in words if not word.startswith(_RANKS)], int(found[0])


def check_virtual(settings: Settings) -> None:
    """Raise ConfigError for what ranks that take turns in one process cannot do."""
    if settings.sharding != "none":
        raise ConfigError(
            f"sharding={settings.sharding} shares a model among real ranks, and those of engine=virtual are in one "
            "process; use engine=torchrun, or drop sharding"
        )
    for key in ("trace", "time_compute_only"):
        if getattr(settings, key):
            raise ConfigError(f"{key}=true is about times, which engine=virtual simulates; use engine=torchrun")


def virtual_case(case: Case, cluster: Cluster, device: str, ranks: int) -> Case:
    """Return `case` on virtual ranks of this machine, with the calibration that its plan and times rest on."""
    here: Device = "cuda" if machine.gpus() and device != "cpu" else "cpu"
    if device == "cuda" and here == "cpu":
        raise ConfigError("device=cuda, but there is no GPU here; virtual ranks can train with device=cpu")
    if ranks > case.world_size:
        raise ConfigError(f"engine.ranks={ranks} is more than the {case.world_size} of {case.cluster}; drop it")
    if cluster.nodes > 1 and ranks % cluster.devices_per_node:
        raise ConfigError(
            f"engine.ranks={ranks} leaves a node of {case.cluster} half full; use a multiple of its "
            f"{cluster.devices_per_node} devices"
        )
    if case.world_size == 1:
        raise ConfigError(f"{case.cluster} has one rank, which exchanges nothing; use world_size=8")
    ranks = 0 if ranks == case.world_size else ranks
    found = replace(case, virtual=here, ranks=ranks, calibration=target_of(case).calibration)
    check_case(replace(case, device=here, world_size=found.trained_ranks))
    return found
