"""The Costs by which schemes plan, from the same TimingModel that simulates the plan."""

from dataclasses import replace

from ssfx.core.origin import Origin
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster import Cluster
from ssfx.planning.costs import Costs, Curve


def costs_on(cluster: Cluster, compressor: str | None, density: float | None) -> Costs:
    """Return the costs of planning `compressor` (a spec, None: dense) at `density` for `cluster`.

    ConfigError names the compressors with times when `compressor` has none; nothing is substituted.
    """
    system = system_on(cluster)
    costs = system.planning_costs(compressor, density)
    if compressor is None:
        return costs
    origin, links = costs.origin, system.origin
    note = f"compression {origin.kind}: {origin.note}; exchange {links.kind}: {links.note}"
    return replace(costs, origin=replace(origin, note=note))


def nominal_costs(cluster: Cluster) -> Costs:
    """Return costs with free compression: enough to see whether a plan is possible, not how long it takes."""
    zero = Curve.zero()
    origin = Origin("nominal", note="compression is free; only for checking a plan")
    return Costs(cluster.world_size, zero, zero, zero, cluster.exchange(), origin)
