"""OMGS-SGD: a tensor is merged into the next one when the extra waiting costs less than the message it saves.

One pass over the tensors in backward order, no search. The rule is local: the result is not the best grouping in the
reference timeline, and docs/schemes.md says by how much. Source: D-48 (OMGS-SGD, INFOCOM 2020, read through its code).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.cheapest_plan import assumed_networks, least, noted, priced
from ssfx.schemes.search.contiguous_groups import JointModel, ProfiledOptions, joint_buckets
from ssfx.schemes.search.shared import shared
from ssfx.schemes.transport import Transport, sparse_transport

NETWORKS = (0.06, 0.25, 1.0, 4.0, 16.0)
"""Networks that the guarded rule is asked for: all-reducing the gradient takes so many times as long as backward."""
COUNTS = (1, 2, 4, 8, 16, 32)
"""Numbers of even groups that it compares with."""
Cuts = Callable[[JointModel, Transport, str], "list[int]"]


def twice(options: CompressOptions, world_size: int) -> Transport:
    """Return the transport of OMGS's code, which sends values and indices of fixed size apart: two start-ups."""
    transport = sparse_transport(options, world_size)
    return replace(transport, collective="all_gather_twice") if transport.collective == "all_gather" else transport


@dataclass(frozen=True, kw_only=True)
class OmgsOptions(ProfiledOptions):
    """Options of OMGS; the authors' launch script has density 0.001, SSFusion's runs 0.01.

    rule: "paper" merges as the printed rule says, "guarded" takes, of the groups that it gives on several networks, of
    one group and of none, those with the least price.
    """

    rule: Literal["guarded", "paper"] = "guarded"


@dataclass(frozen=True)
class Decision:
    """What the rule found for one piece: seconds of waiting if it merges into the next, seconds of network saved."""

    wait_s: float
    save_s: float

    @property
    def merge(self) -> bool:
        """True when waiting costs less; a tie is not worth it."""
        return self.wait_s < self.save_s


@scheme(
    "omgs",
    summary="neighbours merged while waiting for the next one costs less than the message saved",
    source="OMGS-SGD, INFOCOM 2020; D-48",
    defaults=OmgsOptions(),
    fusion_unit="bucket",
    collectives=("all_gather", "all_gather_twice", "all_reduce"),
    profiled=True,
)
def plan_omgs(profile: Profile, costs: Costs, options: OmgsOptions) -> Plan:
    """Return the plan of the groups that `decisions` makes, or a better one; its notes hold the predicted time.

    One rank alone has nothing to save and makes one group of everything. Density 1 applies the rule to dense messages.
    """
    own = twice(options, costs.world_size)
    encode = cache(Curve.zero() if own.dense else costs.encode)  # layers repeat, and every network asks again

    def plan(transport: Transport, cuts: Cuts) -> Plan:
        def buckets(part: Profile) -> list[Bucket]:
            model = shared(part, costs, ("joint", transport), lambda: JointModel.of(part, costs, transport))
            return joint_buckets(part, transport, model.groups(cuts(model, transport, part.tensors[0].dtype)))

        return plan_per_dtype("omgs", profile, costs.world_size, buckets)

    def rule(network: float) -> Cuts:
        on = costs.on_network(network)

        def cuts(model: JointModel, transport: Transport, dtype: str) -> list[int]:
            if costs.world_size == 1:
                return []

            @cache
            def message(numel: float) -> float:
                return on.exchange_s(transport.collective, transport.nbytes(int(numel), dtype=dtype))

            found = decisions(np.diff(model.numel).tolist(), np.diff(model.ready_s).tolist(), encode, message)
            return [i for i, decision in enumerate(found, start=1) if not decision.merge]

        return cuts

    plans = [("", plan(own, rule(1.0)))]
    if options.rule == "guarded":
        once = [replace(own, collective="all_gather")] if own.collective == "all_gather_twice" else []
        for transport in (own, *once):
            calls = "" if transport is own else ", indices and values in one message"
            for network in assumed_networks(profile, costs, NETWORKS):
                plans.append((f"guarded, groups for another network{calls}", plan(transport, rule(network))))
            for count in COUNTS:
                plans.append((f"guarded, {count} even groups{calls}", plan(transport, even_cuts(count))))
    found = priced(plans, profile, costs)
    return noted(least(found), found[0].price_s)


def even_cuts(count: int) -> Callable[[JointModel, Transport, str], list[int]]:
    """Return what cuts a model into so many groups of about as many elements each."""

    def cuts(model: JointModel, transport: Transport, dtype: str) -> list[int]:  # noqa: ARG001  as a rule is called
        marks = model.numel[-1] * np.arange(1, count) / count
        found = np.unique(np.searchsorted(model.numel, marks))
        return [int(cut) for cut in found if 0 < cut < model.num_pieces]

    return cuts


def decisions(
    numel: Sequence[float], gap_s: Sequence[float], encode: Callable[[float], float], message: Callable[[float], float]
) -> list[Decision]:
    """Return the decision for every tensor but the last, with the seconds that `encode` and `message` give a size.

    The authors keep arrays in which merged tensors are zero and recompute all of them after each merge, in O(L^2). All
    that matters of them is the group being built, the device seconds of the closed groups, and when the network is free
    of their messages, so one pass does.
    """
    found: list[Decision] = []
    closed_s = free_s = 0.0
    group, group_gap_s, group_encode_s, group_message_s = numel[0], gap_s[0], encode(numel[0]), message(numel[0])
    for size, next_gap_s in zip(numel[1:], gap_s[1:], strict=True):
        encode_s, message_s = encode(size), message(size)
        merged_encode_s, merged_message_s = encode(group + size), message(group + size)
        ready_s = closed_s + group_gap_s + group_encode_s
        start_s = max(free_s, ready_s)
        found.append(
            Decision(
                wait_s=next_gap_s + merged_encode_s - group_encode_s - encode_s - (start_s - ready_s),
                save_s=group_message_s + message_s - merged_message_s,
            )
        )
        if found[-1].merge:
            group, group_gap_s = group + size, group_gap_s + next_gap_s
            group_encode_s, group_message_s = merged_encode_s, merged_message_s
        else:
            closed_s, free_s = ready_s, start_s + group_message_s
            group, group_gap_s, group_encode_s, group_message_s = size, next_gap_s, encode_s, message_s
    return found
