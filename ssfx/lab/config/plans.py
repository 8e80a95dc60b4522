"""Plans of cases from shipped profiles, before anything is started."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ssfx.advice.cases import plan_of_shards, sharding_of
from ssfx.advice.sharded_steps import Asked, plan_sharded
from ssfx.compressors.memories import memories
from ssfx.core import machine
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.progress import doing
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.devices import device_names, sheet_named
from ssfx.perf_model.mesh import mesh_on
from ssfx.perf_model.plan_costs import nominal_costs
from ssfx.perf_model.shipped_profiles import is_shipped, load_shipped
from ssfx.perf_model.target import target_of
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import check_memory, make_plan
from ssfx.simulator.pricing.device_memory import device_memory, sharded_memory


def check_plans(cases: Sequence[Case], cluster: Cluster, *, searched: bool = True) -> None:
    """Raise ConfigError when the plan of any case is impossible, or its timing would include the search for one.

    Of cases that differ in density only, the least and the most dense are planned: what is possible for both is
    possible between them. A model without a shipped profile cannot be planned for, so its cases are not checked.
    `searched` False leaves out schemes that search for their plan, as that may take a minute.
    """
    densities: dict[str, set[float]] = {}
    for case in cases:
        densities.setdefault(_but_density(case), set()).add(_density(case))
    unplanned = {combination: {min(found), max(found)} for combination, found in densities.items()}
    with doing("planning"):
        for case in cases:
            _check_warmup(case)
            left = unplanned[_but_density(case)]
            at_once = not schemes[case.scheme].profiled
            if _density(case) in left and is_shipped(case.model) and (searched or at_once):
                with doing(f"planning {case.label}"):
                    profile = load_shipped(case.model)
                    if sharding := sharding_of(case):
                        plan = plan_of_shards(case, profile, sharding, mesh_on(cluster, sharding.shards)).plan
                    else:
                        plan = make_plan(case.scheme, profile, nominal_costs(cluster), case.plan_options)
                if case.memory is not None and case.sharding != "fsdp":
                    check_memory(plan, memories.build(case.memory))
                left.remove(_density(case))


def check_simulations(cases: Sequence[Case]) -> None:
    """Raise ConfigError when a case cannot be simulated: nothing is known of its times, or its plan is impossible.

    Nothing is simulated. Schemes that search for their plan are not planned either, as that may take a minute.
    """
    with doing("checking the plans of the runs"):
        for case in cases:
            target = target_of(case)
            costs = target.system.planning_costs(case.compressor, case.density)
            if not schemes[case.scheme].profiled:
                plan = make_plan(case.scheme, target.profile, costs, case.plan_options)
                if case.memory is not None:
                    check_memory(plan, memories.build(case.memory))


def without_room(cases: Sequence[Case], cluster: Cluster) -> list[str]:
    """Return a line for every model and batch of real runs that cannot fit into the GPUs they run on.

    What compressors keep is left out, so that no scheme needs less. Nothing is said of a model without a shipped
    profile, nor of GPUs without a data sheet.
    """
    on = cluster.device if cluster.device in device_names() else sheet_named(next(iter(machine.gpus()), ""))
    if on is None:
        return []
    settings = {
        (one.model, one.optimizer, one.precision, one.batch_size, one.sharding, one.shards): one
        for one in cases
        if one.device == "cuda"
    }
    found = []
    for case in settings.values():
        if is_shipped(case.model):
            profile = load_shipped(case.model)
            how: dict[str, Any] = {
                "optimizer": case.optimizer,
                "precision": case.precision,
                "batch_size": case.batch_size,
            }
            if sharding := sharding_of(case):
                needed = sharded_memory(profile, plan_sharded(profile, sharding, Asked(), Asked()), on, **how)
            else:
                plan = make_plan("ddp", profile, nominal_costs(replace(cluster, device=on)), {})
                needed = device_memory(profile, plan, on, **how)
            if needed is not None and not needed.fits:
                found.append(f"{case.model} on {on} {needed.text}")
    return found


def _but_density(case: Case) -> str:
    return str((case.model, case.scheme, case.memory, {**case.plan_options, "density": None}))


def _density(case: Case) -> float:
    return 1.0 if case.density is None else case.density


def _check_warmup(case: Case) -> None:
    scheme = schemes[case.scheme]
    if scheme.profiled and case.world_size > 1 and case.sharding == "none":
        observed = scheme.online(case.plan_options).observed_steps
        if case.warmup_steps <= observed:
            steps = "" if case.steps > observed + 3 else f" steps={2 * (observed + 3)}"
            raise ConfigError(
                f"scheme={case.scheme} profiles for {observed} steps and then plans, which warmup_steps="
                f"{case.warmup_steps} would time as training; use warmup_steps={observed + 3}{steps}"
            )
