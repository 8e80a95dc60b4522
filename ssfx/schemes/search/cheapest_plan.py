"""The guard of schemes that plan by a profile: of the plans that a rule can give, the one with the least price.

A paper's rule is local: it looks at one buffer or one pair of tensors, and some networks lead it to plans that are
several times slower than others that the same rule would have made. So the rule is asked more than once, for other
networks than the one at hand and with its own options set otherwise, and `evaluate` decides. The plan of the rule as
printed is always among them, and wins ties.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.timeline import StepPrices

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


@dataclass(frozen=True)
class Priced:
    """A plan with its label and its price in seconds."""

    label: str
    plan: Plan
    price_s: float


def priced(
    plans: Iterable[tuple[str, Plan]], profile: Profile, costs: Costs, known: StepPrices | None = None
) -> list[Priced]:
    """Return the plans that differ from one another, each with its price, in the order given.

    `known`: prices of messages that the plans share; see evaluate.
    """
    known = StepPrices(profile, costs) if known is None else known
    found: list[Priced] = []
    seen: set[object] = set()
    for label, plan in plans:
        key = (plan.buckets, plan.launch_order)
        if key not in seen:
            seen.add(key)
            found.append(Priced(label, plan, known.total_s(plan)))
    return found


class HasPrice(Protocol):
    """Anything with a price in seconds."""

    @property
    def price_s(self) -> float:
        """The price."""


One = TypeVar("One", bound=HasPrice)


def least(plans: Iterable[One]) -> One:
    """Return the plan with the least price, of equal ones the first."""
    best: One | None = None
    for one in plans:
        if best is None or one.price_s < best.price_s * (1 - TIE):
            best = one
    assert best is not None
    return best


def noted(chosen: Priced, first_s: float) -> Plan:
    """Return the plan with notes: its price, and how it differs from the first plan, whose price was `first_s`."""
    found = [("predicted_ms", f"{1e3 * chosen.price_s:.6g}")]
    if chosen.label:
        text = f"as the paper prints it {1e3 * first_s:.4g} ms instead of {1e3 * chosen.price_s:.4g}"
        found.append(("rule", f"{chosen.label}; {text}"))
    known = {key for key, _ in found}
    return replace(chosen.plan, notes=(*found, *(note for note in chosen.plan.notes if note[0] not in known)))
