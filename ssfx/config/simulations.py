"""From the words of `ssfx simulate` to the steps it computes: any model on any cluster, whatever data it would need."""

from __future__ import annotations

from collections.abc import Iterable

from ssfx.config.cases import PLAN_KEYS, completed
from ssfx.config.clusters import cluster_at
from ssfx.config.components import components, on_nodes
from ssfx.config.compose import Point, chosen, compose
from ssfx.config.overrides import read
from ssfx.config.schema import Settings
from ssfx.config.simulated import simulated
from ssfx.config.sweep import points_of
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.perf_model.operator_counts import model_work

SIMULATION_KEYS = (*PLAN_KEYS, "batch_size", "optimizer", "accumulate")
"""What a simulated step depends on."""


def resolve_simulations(words: Iterable[str]) -> list[Case]:
    """Return the cases that `words` ask for, each once and never to be stored; ConfigError for a key without effect."""
    request = read(words)
    for key in request:
        if key not in SIMULATION_KEYS and not key.startswith(("scheme.", "compressor.", "cluster.")):
            raise ConfigError(f"a simulated step does not depend on {key}; it takes {', '.join(SIMULATION_KEYS)}")
    points = points_of(request)
    for point in points:
        point.setdefault("scheme", chosen(point, "scheme"))
    cases = [_case(point) for point in completed(points)[0]]
    return list({case.run_id: case for case in cases}.values())


def with_custom(point: Point) -> Point:
    """Return `point`; a model that is chosen without a workload gets its customary batch size and optimizer."""
    if "model" not in point or "workload" in point:
        return point
    work = model_work(point["model"])
    return {"batch_size": work.batch_size, "optimizer": work.optimizer, **point}


def _case(point: Point) -> Case:
    config = compose(with_custom(point))
    settings = Settings.of(config)
    cluster = cluster_at(point, config["cluster"], settings.world_size, settings.device)
    parts = on_nodes(components(config, settings.density, asked="density" in point), cluster)
    case = Case(
        experiment="simulate", model=config["model"]["name"], dataset="", scheme=parts.scheme,
        cluster=cluster.name, world_size=cluster.world_size, batch_size=settings.batch_size,
        compressor=parts.compressor, density=parts.density, memory=parts.memory, scheme_options=parts.scheme_options,
        device="cpu" if cluster.device == "cpu" else "cuda", optimizer=settings.optimizer,
        accumulate=settings.accumulate,
    )  # fmt: skip
    return simulated(case)
