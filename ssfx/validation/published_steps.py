"""What the comparisons with all papers need: a claim's number as a factor, and a simulated step on a published cluster.

A published number that is scored is never typed here or in the modules of the papers: it is read from the ledger.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ssfx.claims.ledger import PaperClaim, ledgers
from ssfx.core.case import ClusterChoice
from ssfx.perf_model.target import Target, target_at
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import Simulated, simulate


@cache
def claims() -> dict[str, PaperClaim]:
    """Return the claims of all papers by id."""
    return {claim.id: claim for ledger in ledgers() for claim in ledger.claims}


def number(claim_id: str) -> float:
    """Return the one number that a claim states; ValueError for one that states none or a range."""
    value = claims()[claim_id].value
    if not isinstance(value, (int, float)):
        raise ValueError(f"claim {claim_id} states no single number")
    return float(value)


def factor(claim_id: str) -> float:
    """Return a stated gain, slowdown or growth as the ratio of two times: 12 % more and 1.12x are both 1.12."""
    unit, value = claims()[claim_id].unit or "", number(claim_id)
    if unit.startswith("x"):
        return value
    return 1 + value / {"fraction": 1, "percent": 100}[unit]


def remainder(claim_id: str) -> float:
    """Return what a stated reduction leaves, as the ratio of two times: 81 % less is 0.19."""
    return 1 - number(claim_id)


def target(cluster: str, model: str, batch_size: float) -> Target:
    """Return `model` on a cluster of a paper, given by its text, as its authors trained it: with SGD."""
    return target_at(ClusterChoice.parse(cluster), None, "auto", model, int(batch_size), "sgd")


def planned(at: Target, scheme: str, **options: Any) -> Plan:
    """Return the plan that `scheme` makes there by the costs that hold there."""
    chosen = schemes[scheme].options(options)
    costs = at.system.planning_costs(getattr(chosen, "compressor", None), getattr(chosen, "density", None))
    return make_plan(scheme, at.profile, costs, options)


def step(at: Target, plan: Plan) -> Simulated:
    """Return one simulated step."""
    return simulate(plan, at.profile, at.system)
