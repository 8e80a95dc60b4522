"""Joint groups: contiguous tensors that share one compressor call and one message, and what a grouping costs.

What MergeComp, OMGS, Cupcake and their fixed-count variants have in common: they differ in where they cut the backward
order. Source: D-42, D-47 to D-49.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs, Curve
from ssfx.planning.plan import ITEM_BYTES, Bucket, Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.online_planning import OnlinePlanning
from ssfx.schemes.search.byte_groups import units
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.timeline import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Seconds = Callable[[Array], Array]


MAX_INDEX = 2**31 - 1
"""Largest number of elements that the 32-bit indices of one message can address."""
IMPOSSIBLE_S = 1e6
"""What a message is charged that cannot be: more than anything else, and finite, so that sums stay numbers."""


@dataclass(frozen=True, kw_only=True)
class ProfiledOptions(CompressOptions):
    """Options of schemes that cut by ready times and costs.

    profile_iters: dense iterations before the plan, the first of which is not counted.
    """

    profile_iters: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile_iters < 2:
            raise ValueError(f"profile_iters must be at least 2, as the first is not counted; got {self.profile_iters}")

    def online(self) -> OnlinePlanning:
        """Return the dense steps before the plan."""
        return replace(super().online(), observed_steps=self.profile_iters)


class GroupCurves(TypedDict):
    """Seconds of one group by its elements, for one-dimensional arrays of them: compressor call, decoding, message."""

    encode: Seconds
    decode: Seconds
    message: Seconds


def group_curves(
    part: Profile,
    costs: Costs,
    transport: Transport,
    once: Callable[[object, Seconds], Seconds] = lambda _, asked: asked,
) -> GroupCurves:
    """Return the curves of groups of one dtype's tensors; dense ones need no compressor.

    once: wraps what does not depend on the network, with a key of all that it depends on besides the sizes.
    """
    item_bytes = ITEM_BYTES[part.tensors[0].dtype]

    def nbytes_of(sizes: Array) -> Array:
        if transport.in_arrays:
            return transport.nbytes_many(sizes)
        ascending, inverse = np.unique(sizes, return_inverse=True)
        return transport.nbytes_many(ascending)[inverse]

    packed_bytes = once(transport, nbytes_of)

    def message(sizes: Array) -> Array:
        if transport.dense:
            return costs.exchange_many_s(transport.collective, item_bytes * sizes)
        return np.where(
            sizes > MAX_INDEX, IMPOSSIBLE_S, costs.exchange_many_s(transport.collective, packed_bytes(sizes))
        )

    encode, decode = (Curve.zero(), Curve.zero()) if transport.dense else (costs.encode, costs.decode)
    return {"encode": once(encode, encode.many), "decode": once(decode, decode.many), "message": message}


@dataclass(frozen=True)
class JointModel:
    """The tensors of one dtype as a row of pieces that can be cut between any two, and the curves of their groups.

    A piece is a tensor with elements; tensors without any ride along with the next one. `count[j]`, `ready_s[j]` and
    `numel[j]` are the tensors, the backward seconds and the elements before the cut behind j pieces.
    """

    count: tuple[int, ...]
    ready_s: Array
    numel: Array
    curves: GroupCurves

    @classmethod
    def of(cls, part: Profile, costs: Costs, transport: Transport) -> JointModel:
        """Return the model of one dtype's profile."""
        count = (0, *np.cumsum([len(group) for group in units(part.tensors)]).tolist())
        ready_s = np.concatenate([[0.0], np.cumsum(part.ready_gap_s)])[list(count)]
        numel = np.concatenate([[0.0], np.cumsum(part.numel, dtype=float)])[list(count)]
        return cls(count, ready_s, numel, group_curves(part, costs, transport))

    @property
    def num_pieces(self) -> int:
        """Number of pieces; a model without elements is one."""
        return len(self.count) - 1

    def groups(self, cuts: Sequence[int]) -> list[range]:
        """Return the positions of each group's tensors, when it is cut behind those numbers of pieces."""
        return [range(self.count[a], self.count[b]) for a, b in pairwise((0, *cuts, self.num_pieces))]


def joint_buckets(part: Profile, transport: Transport, groups: Iterable[range]) -> list[Bucket]:
    """Return one bucket per group, with one message of one compressor call; more where indices would not suffice."""
    parts = groups if transport.dense else (one for at in groups for one in addressable(part, at))
    return [Bucket((transport.lane([part.tensors[at.start : at.stop]]),)) for at in parts]


def addressable(part: Profile, at: range) -> Iterator[range]:
    """Yield the positions `at`, cut where the elements between two cuts would exceed what indices can address."""
    if sum(part.numel[at.start : at.stop]) <= MAX_INDEX:
        yield at
        return
    start, filled = at.start, 0
    for i in at:
        if filled and filled + part.numel[i] > MAX_INDEX:
            yield range(start, i)
            start, filled = i, 0
        filled += part.numel[i]
    yield range(start, at.stop)


def with_prediction(plan: Plan, profile: Profile, costs: Costs) -> Plan:
    """Return `plan` with its predicted end in its notes."""
    return replace(plan, notes=(("predicted_ms", f"{1e3 * evaluate(plan, profile, costs).total_s:.6g}"), *plan.notes))
