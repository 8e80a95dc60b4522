"""Cases that are simulated: the step of one, and what real gradients would change about it."""

from collections.abc import Mapping, Sequence

from ssfx.advice.sharded_steps import Asked, Others, ShardedStep, plan_sharded, simulate_sharded
from ssfx.compressors.memories import memories
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.spec import name_of
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.compressor_times import fused_version
from ssfx.perf_model.mesh import Mesh, mesh_on, neighbours_on
from ssfx.perf_model.target import Target, target_of
from ssfx.planning.costs import Costs
from ssfx.planning.exempt import exempt_by_name, exempted
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import DTYPES, ShardedPlan, Sharding
from ssfx.schemes.make_plan import check_memory, make_plan
from ssfx.simulator import SelectionStats, Simulated, simulate
from ssfx.simulator.pricing.device_memory import DeviceMemory, device_memory, sharded_memory


def selection_of(case: Case, achieved_density: float | None, build_up: float | None) -> SelectionStats:
    """Return what real gradients make of the compressor of `case`, where it is known; see SelectionStats.

    `achieved_density`: the fraction of elements that it really keeps, none where it is asked for no
    density. ConfigError for more build-up than there are ranks.
    """
    if build_up is not None and build_up > case.world_size:
        raise ConfigError(
            f"build-up is what all ranks select together over what one does, at most the {case.world_size} ranks of "
            f"{case.cluster}, got {build_up:g}"
        )
    if achieved_density is None or case.compressor is None or case.density is None:
        return SelectionStats(build_up=build_up)
    return SelectionStats(((name_of(case.compressor), achieved_density / case.density),), build_up)


def unmoved(case: Case, step: Simulated, given: Mapping[str, float]) -> tuple[str, ...]:
    """Return which options of selection_of, `given` by name, change nothing about `step` beyond what is assumed anyway.

    Messages may have the size that was asked for, or be exchanged by something that was measured as a whole.
    """
    assumed = {"achieved_density": case.density, "build_up": case.world_size}
    found = []
    for name, value in given.items():
        others: dict[str, float | None] = {**dict.fromkeys(assumed), **given, name: None}
        if value != assumed[name]:
            _, without = simulate_case(case, selection_of(case, **others))
            if without.tasks == step.tasks:
                found.append(name)
    return tuple(found)


def simulate_case(case: Case, selection: SelectionStats | None = None) -> tuple[Target, Simulated]:
    """Return one step of `case` and what it was simulated on; ConfigError for an impossible or uncalibrated one.

    The scheme plans by the costs of the very system that then executes the plan, and without knowing the `selection`.
    """
    target = _calibrated(case)
    return target, _step(case, target, 1.0, selection)


def _calibrated(case: Case) -> Target:
    target = target_of(case)
    if case.counts not in ("", fused_version()):
        raise ConfigError(
            f"{case.label} on {case.cluster} is a case of counts {case.counts}, here are {fused_version()}; "
            "resolve it again with the same words"
        )
    if case.calibration != target.calibration:
        raise ConfigError(
            f"{case.label} on {case.cluster} is a case of calibration {case.calibration or 'none'}, here is "
            f"{target.calibration}; resolve it again with the same words"
        )
    return target


def planning_inputs(case: Case) -> tuple[Profile, Costs]:
    """Return what the plan of a case with a calibration is made from; ConfigError where that is no longer here."""
    target = _calibrated(case)
    return target.profile, target.system.planning_costs(case.compressor, case.density)


def sensitivity(case: Case, target: Target, factors: Sequence[float] = (0.5, 2.0)) -> tuple[float, ...]:
    """Return the iteration of `case` in seconds, planned anew, at so many times the bandwidth of the network."""
    return tuple(_step(case, target, factor, None).iteration_s for factor in factors)


def memory_of(case: Case, target: Target, step: Simulated, on: str = "") -> DeviceMemory | None:
    """Return the device memory that a rank of the case takes on device `on` (""): the cluster's; None on hosts."""
    on = on or target.cluster.device
    if isinstance(step, ShardedStep):
        return sharded_memory(
            target.profile,
            step.sharded,
            on,
            optimizer=case.optimizer,
            precision=case.precision,
            batch_size=case.batch_size,
        )
    return device_memory(
        target.profile, step.plan, on, optimizer=case.optimizer, precision=case.precision, batch_size=case.batch_size
    )


def sharding_of(case: Case) -> Sharding | None:
    """Return how a case shares its model among ranks; None where it does not."""
    if case.sharding == "none":
        return None
    return Sharding(
        case.sharding,
        case.shards,
        case.world_size // case.shards,
        DTYPES[case.precision],
        DTYPES[case.reduce_dtype],
        case.reshard_after_forward,
    )


def _step(case: Case, target: Target, factor: float, selection: SelectionStats | None) -> Simulated:
    """Return the step with `factor` times the bandwidth of the network."""
    if sharding := sharding_of(case):
        mesh = mesh_on(target.cluster, sharding.shards)
        mesh = mesh if factor == 1 else mesh.at_bandwidth(factor)
        found = plan_of_shards(case, target.profile, sharding, mesh)
        return simulate_sharded(found, target.profile, mesh, selection=selection, accumulate=case.accumulate)
    system = target.system if factor == 1 else target.system.at_bandwidth(factor)
    costs = system.planning_costs(case.compressor, case.density)
    plan = make_plan(case.scheme, target.profile, costs, case.plan_options)
    plan = exempted(plan, exempt_by_name(plan.tensors, case.exempt))
    if case.memory is not None:
        check_memory(plan, memories.build(case.memory))
    inside = step_inside(plan, target.profile, target.cluster, case.accumulate, factor)
    return simulate(plan, target.profile, system, selection=selection, accumulate=case.accumulate, inside=inside)


def step_inside(
    plan: Plan, profile: Profile, cluster: Cluster, accumulate: int, factor: float = 1.0
) -> Simulated | None:
    """Return a step of DDP inside a group of a plan of rounds between groups; None of all other plans."""
    if plan.rounds is None or (ranks := plan.rounds.ranks_per_group) == 1:
        return None
    system = neighbours_on(cluster, ranks).at_bandwidth(factor)
    ddp = make_plan("ddp", profile, system.planning_costs(None, None))
    return simulate(ddp, profile, system, accumulate=accumulate)


def plan_of_shards(case: Case, profile: Profile, sharding: Sharding, mesh: Mesh) -> ShardedPlan:
    """Return the plans of a case whose model ranks share, made for `profile`; ConfigError for what attach refuses."""
    memory = None if case.memory == "none" else case.memory
    asked = Asked(case.scheme, case.plan_options, memory)
    others = Others(case.weights, case.exempt)
    return plan_sharded(profile, sharding, asked, over_shards(case.shard_compressor), others, mesh)


def over_shards(compressor: str | None) -> Asked:
    """Return what is asked of the sum over shards beside replicas: torch's own, or a compressor for a whole group."""
    return Asked() if compressor is None else Asked("fused_all", {"compressor": compressor})
