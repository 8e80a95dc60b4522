"""Whether a cluster is here, and which engine runs it."""

from collections.abc import Iterable, Sequence

from ssfx.core import machine
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, unknown
from ssfx.perf_model.cluster import Cluster

MOST_RANKS_PER_CORE = 8
"""More processes than these on a core take longer to start than they compute."""


def check_here(cluster: Cluster, threads: int = 1) -> None:
    """Raise ConfigError, saying what is missing, when real processes cannot be started on `cluster` from here."""
    if cluster.device == "cpu":
        _check_cores(cluster, threads)
    if cluster.name == "local":
        if cluster.device == "cuda" and cluster.world_size > len(machine.gpus()):
            raise ConfigError(
                f"world_size={cluster.world_size} needs as many GPUs and {len(machine.gpus())} are here; "
                f"use world_size={len(machine.gpus())} or device=cpu"
            )
        return
    from ssfx.lab.engines.hosts import Network

    Network.here(cluster.name)


def check_jobs(cases: Iterable[Case], jobs: int, engine: str) -> None:
    """Raise ConfigError when `jobs` of the cases cannot run at the same time on `engine`, each on cores of its own."""
    if jobs == 1:
        return
    other = {
        "netns": "emulated hosts share the machine's cores with the network between them; drop it",
        "slurm": "Slurm runs as many cases as it finds nodes for; to let it run fewer write cluster.slurm.throttle="
        + str(jobs),
    }
    if engine in other:
        raise ConfigError(f"jobs={jobs} is for runs on this machine, and {other[engine]}")
    from ssfx.lab.engines.places import check_room  # late, as all of engines: listing keys needs none

    check_room(cases, jobs)


def _check_cores(cluster: Cluster, threads: int) -> None:
    cores = machine.cores()
    if cluster.world_size > MOST_RANKS_PER_CORE * cores:
        raise ConfigError(
            f"world_size={cluster.world_size} is too much for the {cores} cores here; use at most "
            f"world_size={MOST_RANKS_PER_CORE * cores}, or simulate a cluster such as cluster=64gpu"
        )
    if threads > cores:
        raise ConfigError(f"threads={threads} of every rank is more than the {cores} cores here; use threads={cores}")


def engine_of(name: str, clusters: Sequence[str]) -> str:
    """Return the engine called `name` for clusters of these names; "auto" is the one that fits, a misfit a ConfigError.

    Clusters that are neither here nor emulated here are simulated; every cluster can be. Slurm is never guessed.
    """
    from ssfx.lab.engines import engines
    from ssfx.lab.engines.hosts import Network

    if name != "auto" and name not in engines:
        raise unknown("engine", name, ["auto", *engines.names()])
    if name in ("simulate", "virtual"):
        return name
    if name == "slurm":
        for cluster in clusters:
            if cluster == "local" or Network.of(cluster):
                raise ConfigError(
                    f"engine=slurm asks Slurm for nodes, and cluster={cluster} is on this machine; name the nodes, for "
                    "example cluster=16gpu cluster.nodes=2, or use engine=auto"
                )
        return name
    fitting = {
        cluster: "torchrun" if cluster == "local" else "netns" if Network.of(cluster) else "simulate"
        for cluster in clusters
    }
    for cluster, fits in fitting.items():
        if fits != fitting[clusters[0]]:
            raise ConfigError(
                f"cluster={clusters[0]} needs engine={fitting[clusters[0]]} and cluster={cluster} engine={fits}; start "
                "ssfx run once for each, or choose engine=simulate"
            )
        if name != "auto" and fits == "simulate":
            raise ConfigError(
                f"engine={name} starts processes on this machine ({machine.description()}), which cluster={cluster} is "
                "not; use engine=simulate, engine=slurm, or cluster=local"
            )
        if name not in ("auto", fits):
            raise ConfigError(f"engine={name} does not run cluster={cluster}; use engine={fits}, or another cluster")
    return fitting[clusters[0]]
