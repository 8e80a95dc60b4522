"""Plans of cases and requests from shipped profiles, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from ssfx.case import Case
from ssfx.cluster import Cluster
from ssfx.config.cases import Planned
from ssfx.cost_tables import costs_on, nominal_costs
from ssfx.costs import Costs
from ssfx.plan import Plan
from ssfx.planning import make_plan
from ssfx.profile import Profile, load_shipped, shipped_dir


def check_plans(cases: Iterable[Case], cluster: Cluster) -> None:
    """Raise ConfigError when the plan of any case is impossible.

    A model without a shipped profile cannot be planned for, so its cases are not checked.
    """
    checked: set[tuple[object, ...]] = set()
    for case in cases:
        options = case_options(case)
        key = (case.model, case.scheme, str(options))
        if key not in checked and (shipped_dir() / f"{case.model}.json").exists():
            make_plan(case.scheme, load_shipped(case.model), nominal_costs(cluster), options)
        checked.add(key)


def case_options(case: Case) -> dict[str, object]:
    """Return the options that `make_plan` takes for `case`."""
    given = {"compressor": case.compressor, "density": case.density}
    return {**case.scheme_options, **{key: value for key, value in given.items() if value is not None}}


def plan_of(planned: Planned) -> tuple[Plan, Profile, Costs]:
    """Return the plan with the profile and the costs it rests on; ConfigError when one of them is not shipped."""
    profile = load_shipped(planned.model)
    costs = costs_on(planned.cluster, planned.parts.compressor, planned.parts.density)
    return make_plan(planned.parts.scheme, profile, costs, planned.parts.plan_options), profile, costs
