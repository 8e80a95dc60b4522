"""From the words of a command to Cases: the one place where configuration becomes what is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ssfx.config.clusters import check_recorded, choice_at
from ssfx.config.components import completed, components, on_nodes
from ssfx.config.compose import Point, chosen, compose
from ssfx.config.groups import choices
from ssfx.config.overrides import Request, check, read
from ssfx.config.schema import KEYS, Settings
from ssfx.config.shared_model import SHARDING_KEYS, of_case, shared_model, with_memory
from ssfx.config.simulations import check_keys, simulated
from ssfx.config.sweep import product_of
from ssfx.core import machine
from ssfx.core.case import Case, Device
from ssfx.core.errors import ConfigError
from ssfx.core.paths import results_dir, weights_folder
from ssfx.core.slurm_site import PREFIX, Site
from ssfx.lab.config.data_keys import with_own_data, without_data_keys
from ssfx.lab.config.epochs import with_recipe, with_steps, with_usual_workload
from ssfx.lab.config.here import check_here, check_jobs, engine_of
from ssfx.lab.results.wandb_mirror import Mirror
from ssfx.lab.workloads import check_case, dataset_spec, models
from ssfx.lab.workloads.initial_weights import named_weights
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.saved_profiles import is_saved
from ssfx.perf_model.target import Target, target_of

NODE_KEYS = ("cluster.nodes", "cluster.devices_per_node", "cluster.device")
"""What Slurm is asked for."""
AS_ASKED = tuple(
    field.name
    for field in fields(Case)
    if field.name in KEYS and field.name not in ("world_size", "density", "device", *SHARDING_KEYS)
)
"""Keys that a case takes as they are; the others depend on its cluster and components."""


@dataclass(frozen=True)
class Job:
    """What `ssfx run` was asked for: the cases in the order they run, on one engine, and what to say about them.

    `configs` holds the complete configuration of each case, as composed. `baselines` are dense schemes among sparse
    ones, `without_density` compressors that send every element among compressors that do not: what was asked of the
    others does not apply to them.
    """

    experiment: str
    preset: str
    engine: str
    wandb: Mirror
    stall_timeout_s: float
    jobs: int
    cluster: Cluster
    site: Site
    cases: tuple[Case, ...]
    configs: tuple[Mapping[str, Any], ...]
    baselines: tuple[str, ...]
    without_density: tuple[str, ...]
    targets: tuple[Target, ...] = ()


def resolve_job(words: Iterable[str]) -> Job:
    """Return the job that `words` ask for; ConfigError when any of its cases is impossible.

    Repeats are the outer loop, so that what disturbs the machine for a while hits all schemes alike.
    """
    words, ranks = split_ranks(words)
    request = with_recipe(with_own_data(read(without_data_keys(words))))
    said = {key: request.pop(key) for key in list(request) if key.startswith(f"cluster.{PREFIX}")}
    for key in ("preset", "wandb", "wandb_project", "wandb_tags", "stall_timeout_s", "jobs"):
        if len(request.get(key, ())) > 1:
            raise ConfigError(f"one command takes one {key}; start ssfx run once for each")
    for model in request.get("model", ()):
        if is_saved(model):
            raise ConfigError(
                f"profile={model} has no network to train and is not kept with results; use it with ssfx plan, "
                "simulate or advise"
            )
    found = grid(request)
    simulates, virtual = found.engine == "simulate", found.engine == "virtual"
    if simulates:
        check_keys([*request, "model.path"] if weights_folder() else request)
    for key in found.axes:
        if key.startswith("cluster.") and not simulates and not virtual:
            _check_described(key, found.engine)
    points, baselines, without_density = completed(found.points)
    resolved = [_resolve(point, found, ranks) for point in points]
    config, cluster, shared, _ = resolved[0]
    site = _site(said, config, found.engine)
    repeats = 1 if simulates else max(settings.repeats for _, _, settings, _ in resolved)
    found_cases: dict[str, tuple[Case, dict[str, Any]]] = {}
    for repeat in range(repeats):
        for composed, _, settings, case in resolved:
            if repeat < settings.repeats:
                one = replace(case, repeat=repeat, seed=case.seed + repeat if case.evaluate else case.seed)
                found_cases.setdefault(one.run_id, (one, composed))
    cases = tuple(case for case, _ in found_cases.values())
    check_jobs(cases, shared.jobs, found.engine)
    targets = tuple({case.calibration: target_of(case) for case in cases if simulates or virtual}.values())
    return Job(
        found.experiment,
        config["preset"]["name"],
        found.engine,
        Mirror(shared.wandb, results_dir() / "wandb", shared.wandb_project, shared.wandb_tags),
        shared.stall_timeout_s,
        shared.jobs,
        cluster,
        site,
        cases,
        tuple(composed for _, composed in found_cases.values()),
        baselines,
        without_density,
        targets,
    )


def _site(said: Request, config: Mapping[str, Any], engine: str) -> Site:
    """Return what Slurm is asked for besides nodes: by the cluster's file, then by the keys cluster.slurm.*."""
    for key in said:
        if engine != "slurm":
            raise ConfigError(f"{key} is for Slurm, and these runs have engine={engine}; drop it, or add engine=slurm")
    own = config["cluster"].get("slurm") or {}
    if not isinstance(own, Mapping):
        raise ConfigError(f"slurm: in the file of cluster={config['cluster']['name']} must hold key: value lines")
    return Site.of({**own, **{key.removeprefix(f"cluster.{PREFIX}"): values[0] for key, values in said.items()}})


def _check_described(key: str, engine: str) -> None:
    """Raise ConfigError when a run of `engine` finds what `key` says of a cluster as it is."""
    if (engine == "slurm" and key in NODE_KEYS) or (engine == "netns" and key == "cluster.devices_per_node"):
        return
    if engine == "slurm":
        raise ConfigError(f"{key} is what it is on Slurm's nodes; drop it, or add engine=simulate")
    raise ConfigError(f"{key} describes another cluster than the one that is here; drop it, or add engine=simulate")


def _resolve(point: Point, found: Grid, ranks: int) -> tuple[dict[str, Any], Cluster, Settings, Case]:
    config = with_steps(compose(point))
    settings = Settings.of(config)
    virtual = found.engine == "virtual"
    if virtual:
        check_virtual(settings)
    # The device of virtual ranks is here, that of their cluster is the cluster's.
    cluster = cluster_of(config["cluster"], settings.world_size, "auto" if virtual else settings.device)
    shared = shared_model(settings, cluster, found.engine)
    parts = components(config, settings.density, asked="density" in point)
    parts = with_memory(on_nodes(parts, cluster, shared), shared, asked="memory" in found.axes)
    if found.engine not in ("simulate", "slurm", "virtual"):
        check_here(cluster, settings.threads)
    check_recorded(point, cluster)
    case = Case(
        experiment=found.experiment,
        model=models[config["model"]["name"]].name,
        dataset=dataset_spec(config["model"]["name"], config["dataset"]),
        scheme=parts.scheme,
        cluster=choice_at(point, cluster),
        world_size=cluster.world_size,
        compressor=parts.compressor,
        density=parts.density,
        memory=parts.memory,
        scheme_options=parts.scheme_options,
        device="cpu" if cluster.device == "cpu" else "cuda",
        initial_weights=named_weights(folder) if (folder := weights_folder()) else "",
        **{name: getattr(settings, name) for name in AS_ASKED},
        **of_case(settings, shared),
    )
    if found.engine == "simulate":
        case = simulated(case)
    elif virtual:
        case = virtual_case(case, cluster, settings.device, ranks)
    else:
        check_case(case)
    return config, cluster, settings, case


@dataclass(frozen=True)
class Grid:
    """The points of one experiment on one engine and the values that each axis takes over all of them."""

    experiment: str
    engine: str
    points: tuple[Point, ...]
    axes: Mapping[str, tuple[Any, ...]]


def grid(request: Request) -> Grid:
    """Return the grid of the requested experiment; a value that the user gave replaces the experiment's axis.

    Where it is simulated, the axes under `simulated` replace those of the same name; ConfigError for an experiment
    without that key, which is about what real gradients do. Where GPUs run it, those under `real` do. An `also` entry
    adds points outside the grid; it is left out when the user chose one of its keys.
    """
    name = _one(request, "experiment", None)
    base = compose({"experiment": name} if name else {})
    experiment = base["experiment"]
    sweep = experiment.get("sweep") or {}
    clusters = request.get("cluster") or sweep.get("cluster") or (base["cluster"]["name"],)
    engine = engine_of(_one(request, "engine", base["engine"]["name"]), clusters)
    if engine == "simulate":
        sweep = {**sweep, **_simulated(experiment)}
    elif len(clusters) > 1:
        raise ConfigError("one command runs on one cluster; start ssfx run once for each")
    elif engine == "slurm" or (engine == "torchrun" and _one(request, "device", "auto") != "cpu" and machine.gpus()):
        sweep = {**sweep, **(experiment.get("real") or {})}
    swept = {key: check(key, _listed(values)) for key, values in sweep.items()}
    axes = {**swept, **request}
    axes.setdefault("scheme", (chosen({"experiment": name} if name else {}, "scheme"),))
    for key in ("model", "dataset"):
        if key in request and len(axes.get("workload", ())) > 1:
            raise ConfigError(
                f"experiment={experiment['name']} runs several workloads, each with its own {key}; "
                f"choose one with workload=... as well as {key}=..."
            )
    extra = [entry for entry in experiment.get("also") or () if not set(entry) & set(request)]
    points = list(product_of(axes))
    for entry in extra:
        points += product_of({**axes, **{key: check(key, _listed(value)) for key, value in entry.items()}})
    return Grid(experiment["name"], engine, tuple(map(with_usual_workload, points)), axes)


def _one(request: Request, key: str, default: Any) -> Any:
    values = request.get(key, (default,))
    if len(values) > 1:
        raise ConfigError(f"one command runs one {key}; start ssfx run once for each")
    return values[0]


def _simulated(experiment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the axes that an experiment has where it is simulated."""
    if "simulated" not in experiment:
        able = [name for name in choices("experiment") if "simulated" in compose({"experiment": name})["experiment"]]
        raise ConfigError(
            f"experiment={experiment['name']} is about what real gradients do, which a simulation does not know; "
            f"choose experiment={' or experiment='.join(able)}, or cluster=local"
        )
    return experiment["simulated"] or {}


def _listed(values: Any) -> Sequence[Any]:
    """Return the values of an axis, which may be written as one."""
    return values if isinstance(values, list | tuple) else (values,)


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
        raise ConfigError(
            f"engine.ranks={ranks} is more than the {case.world_size} ranks of cluster={case.cluster}; "
            f"write engine.ranks={case.world_size}, or a larger cluster, as cluster=64gpu"
        )
    if cluster.nodes > 1 and ranks % cluster.devices_per_node:
        raise ConfigError(
            f"engine.ranks={ranks} leaves a node of {case.cluster} half full; use a multiple of its "
            f"{cluster.devices_per_node} devices"
        )
    if case.world_size == 1:
        raise ConfigError(f"{case.cluster} has one rank, which exchanges nothing; use world_size=8")
    ranks = 0 if ranks == case.world_size else ranks
    # Quantisers are priced as where the recorded runs of virtual ranks were: in plain torch, without `counts`.
    found = replace(case, virtual=here, ranks=ranks, calibration=target_of(case).calibration)
    check_case(replace(case, device=here, world_size=found.trained_ranks))
    return found
