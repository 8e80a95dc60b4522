"""From a request to the grid of its experiment: the engine, and the points that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssfx.config.compose import Point, chosen, compose
from ssfx.config.groups import choices
from ssfx.config.overrides import Request, check
from ssfx.config.sweep import product_of
from ssfx.core import machine
from ssfx.core.errors import ConfigError
from ssfx.lab.config.here import engine_of


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
    return Grid(experiment["name"], engine, tuple(points), axes)


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
