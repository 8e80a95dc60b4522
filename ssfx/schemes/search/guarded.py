"""The guard of schemes that plan by a profile: of the plans that a rule can give, the one with the least price.

A paper's rule is local: it looks at one buffer or one pair of tensors, and some networks lead it to plans that are
several times slower than others that the same rule would have made. So the rule is asked more than once, for other
networks than the one at hand and with its own options set otherwise, and `evaluate` decides. The plan of the rule as
printed is always among them, and wins ties.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.pricing.timeline import evaluate

TIE = 1e-9
"""Relative difference below which two prices are equal: the same sums, added in another order."""


def assumed_networks(profile: Profile, costs: Costs, shares: Iterable[float]) -> list[float]:
    """Return factors on the time of exchanges: 1, and those with which all-reducing the whole gradient takes so many
    times as long as the backward pass.

    The latter do not depend on the rate of the network at hand, so that a faster one has no fewer plans to choose from.
    """
    whole_s = costs.exchange_s("all_reduce", profile.nbytes)
    if not whole_s or not profile.backward_s:
        return [1.0]
    return [1.0, *(share * profile.backward_s / whole_s for share in shares)]


def least(plans: Iterable[tuple[str, Plan]], profile: Profile, costs: Costs) -> tuple[str, Plan, float, float]:
    """Return the label and plan with the least price, its price, and that of the first one, in seconds."""
    best: tuple[str, Plan, float] | None = None
    first_s = 0.0
    seen: set[object] = set()
    for label, plan in plans:
        key = (plan.buckets, plan.launch_order)
        if key in seen:
            continue
        seen.add(key)
        price_s = evaluate(plan, profile, costs).total_s
        if best is None:
            best, first_s = (label, plan, price_s), price_s
        elif price_s < best[2] * (1 - TIE):
            best = label, plan, price_s
    assert best is not None
    return *best, first_s


def guarded(plans: Iterable[tuple[str, Plan]], profile: Profile, costs: Costs) -> Plan:
    """Return the plan with the least price; its notes say which it is, its price, and that of the first one."""
    return noted(*least(plans, profile, costs))


def noted(label: str, plan: Plan, price_s: float, first_s: float) -> Plan:
    """Return `plan` with notes: its price, and how it differs from the first plan, whose price was `first_s`."""
    found = [("predicted_ms", f"{1e3 * price_s:.6g}")]
    if label:
        found.append(("rule", f"{label}; as the paper prints it {1e3 * first_s:.4g} ms instead of {1e3 * price_s:.4g}"))
    known = {key for key, _ in found}
    return replace(plan, notes=(*found, *(note for note in plan.notes if note[0] not in known)))
