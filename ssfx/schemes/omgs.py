"""OMGS-SGD: a tensor is merged into the next one when the extra waiting costs less than the message it saves.

One pass over the tensors in backward order, no search. The rule is local: the result is not the best grouping in the
reference timeline, and docs/schemes.md says by how much. Source: D-48 (OMGS-SGD, INFOCOM 2020,
read through its code).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import SparseOptions, scheme
from ssfx.schemes.carrier import Carrier, sparse_carrier
from ssfx.schemes.search.byte_groups import plan_per_dtype
from ssfx.schemes.search.contiguous_groups import JointModel, ProfiledOptions, joint_buckets, with_prediction


@dataclass(frozen=True, kw_only=True)
class CallsOptions(SparseOptions):
    """`calls_per_lane`: collectives that a gathered payload of fixed size takes, 1 or 2; null: 2, as in OMGS's code.

    Two of them are two start-ups: the code sends values and indices apart. Payloads of variable size, and those that an
    all_reduce adds, know no such choice.
    """

    calls_per_lane: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calls_per_lane not in (None, 1, 2):
            raise ValueError(f"calls_per_lane must be 1 or 2, got {self.calls_per_lane}")
        if self.calls_per_lane is not None and self.sizes == "variable":
            raise ValueError(
                f"calls_per_lane={self.calls_per_lane} has no effect on payloads of variable size; "
                "drop it or set sizes=fixed"
            )

    def carrier(self, scheme: str, world_size: int) -> Carrier:
        """Return the carrier of the options; ConfigError when the number of calls would have no effect."""
        carrier = sparse_carrier(scheme, self, world_size)
        if carrier.collective == "all_gather" and self.calls_per_lane != 1:
            return replace(carrier, collective="all_gather_twice")
        if not carrier.dense and carrier.collective == "all_reduce" and self.calls_per_lane is not None:
            raise ConfigError(
                f"scheme={scheme} with compressor={self.compressor}: calls_per_lane={self.calls_per_lane} has no "
                "effect on payloads that an all_reduce adds; drop it, or choose compressor=topk"
            )
        return carrier


@dataclass(frozen=True, kw_only=True)
class OmgsOptions(CallsOptions, ProfiledOptions):
    """Options of OMGS; the authors' launch script has density 0.001, SSFusion's runs 0.01."""


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
    collectives=("all_gather", "all_gather_twice", "all_gather_v", "all_reduce"),
    profiled=True,
)
def plan_omgs(profile: Profile, costs: Costs, options: OmgsOptions) -> Plan:
    """Return the plan of the groups that `decisions` makes; its notes hold the predicted time.

    One rank alone has nothing to save and makes one group of everything. Density 1 applies the rule to dense messages.
    """
    carrier = options.carrier("omgs", costs.world_size)
    encode = Curve.zero() if carrier.dense else costs.encode

    def buckets(part: Profile) -> list[Bucket]:
        model, dtype = JointModel.of(part, costs, carrier), part.tensors[0].dtype

        def message(numel: float) -> float:
            return costs.exchange_s(carrier.collective, carrier.nbytes(int(numel), dtype=dtype))

        cuts: list[int] = []
        if costs.world_size > 1:
            found = decisions(np.diff(model.numel).tolist(), np.diff(model.ready_s).tolist(), encode, message)
            cuts = [i for i, decision in enumerate(found, start=1) if not decision.merge]
        return joint_buckets(part, carrier, model.groups(cuts))

    return with_prediction(plan_per_dtype("omgs", profile, costs.world_size, buckets), profile, costs)


def decisions(
    numel: Sequence[float],
    gap_s: Sequence[float],
    encode: Callable[[float], float],
    message: Callable[[float], float],
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
