"""Plans of cases and requests from shipped profiles, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from ssfx.case import Case
from ssfx.cluster import Cluster
from ssfx.config.cases import Planned
from ssfx.cost_tables import costs_on, nominal_costs
from ssfx.costs import Costs
from ssfx.errors import ConfigError
from ssfx.plan import Plan
from ssfx.planning import make_plan
from ssfx.profile import Profile, load_shipped, shipped_dir
from ssfx.schemes import schemes


def check_plans(cases: Iterable[Case], cluster: Cluster) -> None:
    """Raise ConfigError when the plan of any case is impossible, or its timing would include the search for one.

    A model without a shipped profile cannot be planned for, so its cases are not checked.
    """
    checked: set[tuple[object, ...]] = set()
    for case in cases:
        _check_warmup(case)
        options = case_options(case)
        key = (case.model, case.scheme, str(options))
        if key not in checked and (shipped_dir() / f"{case.model}.json").exists():
            make_plan(case.scheme, load_shipped(case.model), nominal_costs(cluster), options)
        checked.add(key)


def _check_warmup(case: Case) -> None:
    scheme = schemes[case.scheme]
    if scheme.profiled and case.world_size > 1:
        observed = getattr(scheme.options(case_options(case)), "profile_iters", 0)
        if case.warmup_steps <= observed:
            raise ConfigError(
                f"scheme={case.scheme} profiles for {observed} steps and then plans, which warmup_steps="
                f"{case.warmup_steps} would time as training; use warmup_steps={observed + 3}"
            )


def case_options(case: Case) -> dict[str, object]:
    """Return the options that `make_plan` takes for `case`."""
    given = {"compressor": case.compressor, "density": case.density}
    return {**case.scheme_options, **{key: value for key, value in given.items() if value is not None}}


def plan_of(planned: Planned) -> tuple[Plan, Profile, Costs]:
    """Return the plan with the profile and the costs it rests on; ConfigError when one of them is not shipped."""
    profile = load_shipped(planned.model)
    costs = costs_on(planned.cluster, planned.parts.compressor, planned.parts.density)
    return make_plan(planned.parts.scheme, profile, costs, planned.parts.plan_options), profile, costs
