"""Cases that are simulated: keys that would change nothing are refused; one step stands for all seeds and repeats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ssfx.case import Case
from ssfx.config.targets import Target, target_of
from ssfx.errors import ConfigError
from ssfx.memories import memories
from ssfx.planning import check_memory, make_plan
from ssfx.simulator import Simulated, simulate

WITHOUT_EFFECT = (
    "checkpoint_every", "clip_norm", "control", "evaluate", "lr", "memory", "momentum", "preset", "repeats", "seed",
    "stall_timeout_s", "steps", "warmup_steps", "weight_decay",
)  # fmt: skip
"""Keys that, with their options, change nothing about a simulated step."""


def check_keys(keys: Iterable[str]) -> None:
    """Raise ConfigError for the first key that would have no effect on a simulation."""
    for key in keys:
        if key.partition(".")[0] in WITHOUT_EFFECT or key.startswith("dataset."):
            raise ConfigError(f"{key} has no effect on a simulated step; drop it")


def simulated(case: Case) -> Case:
    """Return `case` as one step in virtual time, with the calibration that is here; ConfigError when there is none."""
    if case.precision != "fp32":
        raise ConfigError(f"precision={case.precision} cannot be simulated: profiles are of fp32; drop it")
    if case.threads != 1:
        raise ConfigError(f"threads={case.threads} cannot be simulated: profiles are of one thread per rank; drop it")
    one = replace(case, steps=1, warmup_steps=0, seed=0, repeat=0, evaluate=False, checkpoint_every=0, control=False)
    return replace(one, calibration=target_of(one).calibration)


def simulate_case(case: Case) -> tuple[Target, Simulated]:
    """Return one step of `case` and what it was simulated on; ConfigError for an impossible or uncalibrated one.

    The scheme plans by the costs of the very system that then executes the plan.
    """
    target = target_of(case)
    if case.calibration != target.calibration:
        raise ConfigError(
            f"{case.label} on {case.cluster} is a case of calibration {case.calibration or 'none'}, here is "
            f"{target.calibration}; resolve it again with ssfx run engine=simulate"
        )
    costs = target.system.planning_costs(case.compressor, case.density)
    plan = make_plan(case.scheme, target.profile, costs, case.plan_options)
    if case.memory is not None:
        check_memory(plan, memories.build(case.memory))
    return target, simulate(plan, target.profile, target.system, accumulate=case.accumulate)
