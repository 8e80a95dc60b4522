"""Plans of `auto` that are worth training with, because what was predicted of them rests on fewer numbers.

A plan that the search finds is best by costs that were measured in a second; few messages of one method each depend
on them least. Dense messages, and the same in 16 bits where the budget has them, are always among
them, so that what is kept is never behind them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.search.auto_budget import DENSE, HALF
from ssfx.schemes.search.auto_methods import Kind, Method
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups, plan_per_dtype
from ssfx.simulator.pricing.timeline import StepPrices

MOST = 6
"""Plans that are trained with, that of the search and dense ones among them."""
ALWAYS = (DENSE, HALF)
"""Kinds that leave nothing out."""
AS_DDP = "messages as of torch DDP"
LATE = 2.0
"""Other plans that are predicted to take so many times as long as the best are not worth it."""


def worth_trying(plan: Plan, profile: Profile, costs: Costs, kinds: Iterable[Kind], known: StepPrices) -> list[Plan]:
    """Return `plan`, dense messages in 32 and 16 bits, and of other kinds the best few messages, the fastest first.

    In 16 bits there are those of torch DDP, too: where messages are cut rests on a prediction as well. None is there
    twice, and none that cannot be priced.
    """
    best: dict[Kind, tuple[float, Plan]] = {}
    as_ddp: list[Plan] = []
    for kind in dict.fromkeys((DENSE, *kinds)):
        try:
            plans = list(_few_messages(profile, costs, kind))
            best[kind] = min(((known.disturbed_s(one), one) for one in plans), key=lambda one: one[0])
            as_ddp += [one for one in plans if kind == HALF and AS_DDP in dict(one.notes)["chosen"]]
        except ConfigError:
            continue
    limit_s = LATE * known.disturbed_s(plan)
    rest = (one for kind, one in best.items() if kind not in ALWAYS and one[0] <= limit_s)
    always = [*(best[kind][1] for kind in ALWAYS if kind in best), *as_ddp]
    chosen = [plan, *always, *(one for _, one in sorted(rest, key=lambda one: one[0]))]
    found = {(one.buckets, one.launch_order): one for one in reversed(chosen)}  # of equal ones the first
    return sorted(found.values(), key=chosen.index)[:MOST]


def _few_messages(profile: Profile, costs: Costs, kind: Kind) -> Iterator[Plan]:
    """Yield plans of one method: in one message, in two of about as many bytes, and in the buckets of torch DDP."""
    caps = {
        "one message": (profile.nbytes, profile.nbytes),
        "two messages": (profile.nbytes / 2, profile.nbytes),
        AS_DDP: (FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES),
    }
    for words, (first, cap) in caps.items():

        def buckets(part: Profile, first: float = first, cap: float = cap) -> list[Bucket]:
            method = Method(kind if kind.fits(part.tensors[0].dtype) else DENSE)
            groups = cap_groups([spec.nbytes for spec in part.tensors], first, cap)
            return [method.bucket(part.tensors[group.start : group.stop]) for group in groups]

        plan = plan_per_dtype("auto", profile, costs.world_size, buckets)
        yield replace(plan, notes=(("chosen", f"{kind.words}, {words}"),))
