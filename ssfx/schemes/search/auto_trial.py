"""Plans of `auto` that are worth training with, because what was predicted of them rests on fewer numbers.

A plan that the search finds is best by costs that were measured in a second; few messages of one method each depend
on them least. Dense messages as torch DDP sends them are among them, so that what is kept is never behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.pricing.timeline import StepPrices
from ssfx.schemes.search.auto_budget import DENSE
from ssfx.schemes.search.auto_methods import Kind, Method
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups, plan_per_dtype

MOST = 6
"""Plans that are trained with, that of the search and dense ones among them."""
LATE = 2.0
"""Plans that are predicted to take so many times as long as the best are not worth it."""


def worth_trying(plan: Plan, profile: Profile, costs: Costs, kinds: Iterable[Kind], known: StepPrices) -> list[Plan]:
    """Return `plan`, dense messages, and of every other kind its best few messages, the fastest of them by prediction.

    None is there twice, and none that cannot be priced.
    """
    best: dict[Kind, tuple[float, Plan]] = {}
    for kind in dict.fromkeys((DENSE, *kinds)):
        if kind.plain_below or kind.calls == "alone":
            continue
        try:
            plans = list(_few_messages(profile, costs, kind))
            best[kind] = min(((known.disturbed_s(one), one) for one in plans), key=lambda one: one[0])
        except ConfigError:
            continue
    limit_s = LATE * known.disturbed_s(plan)
    others = sorted((one for kind, one in best.items() if kind != DENSE and one[0] <= limit_s), key=lambda one: one[0])
    chosen = [plan, best[DENSE][1], *(one for _, one in others)]
    found = {(one.buckets, one.launch_order): one for one in reversed(chosen)}  # of equal ones the first
    return sorted(found.values(), key=chosen.index)[:MOST]


def _few_messages(profile: Profile, costs: Costs, kind: Kind) -> Iterator[Plan]:
    """Yield plans of one method: in one message, in two of about as many bytes, and in the buckets of torch DDP."""
    caps = {
        "one message": (profile.nbytes, profile.nbytes),
        "two messages": (profile.nbytes / 2, profile.nbytes),
        "messages as of torch DDP": (FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES),
    }
    for words, (first, cap) in caps.items():

        def buckets(part: Profile, first: float = first, cap: float = cap) -> list[Bucket]:
            method = Method(kind if kind.fits(part.tensors[0].dtype) else DENSE)
            groups = cap_groups([spec.nbytes for spec in part.tensors], first, cap)
            return [method.bucket(part.tensors[group.start : group.stop]) for group in groups]

        plan = plan_per_dtype("auto", profile, costs.world_size, buckets)
        yield replace(plan, notes=(("chosen", f"{kind.words}, {words}"),))
