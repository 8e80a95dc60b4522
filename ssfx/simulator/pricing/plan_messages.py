"""The messages of a plan with their prices; a search works out each of them once for all plans that have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ssfx.collectives import collectives
from ssfx.core.lazy import numpy as np
from ssfx.planning.plan import Lane, Plan, Segment
from ssfx.simulator.pricing.features import CALLS, COUNT, FIRST, PACKED, REST, compressed, plain
from ssfx.simulator.pricing.prices import AS_PLANNED, Charge, Prices, Times, sums_pairs
from ssfx.simulator.pricing.selection_stats import SelectionStats

if TYPE_CHECKING:
    from ssfx.simulator.pricing.features import Array, Ints


@dataclass(slots=True)
class Call:
    """One compressor call: the position of the tensor that completes it, what it takes, and where it works.

    out_s, back_s: of copying to the host and back.
    """

    at: int
    segments: list[Segment]
    work_s: float
    on_host: bool = False
    out_s: float = 0.0
    back_s: float = 0.0


@dataclass(slots=True)
class Message:
    """One lane of a plan, in seconds; positions are those of tensors in backward order.

    added_s: what gradients take of the device besides backward, hooks and calls, by position. dense_at: where a dense
    segment is complete. last: the latest position that the device hands over, -1 if there is none. charges: the parts
    of the exchange; blocking: no exchange starts before it has ended. decode_s: decoding what was received. summed:
    tensors that the runtime adds straight into the gradients.
    """

    name: str
    blocking: bool
    added_s: dict[int, float] = field(default_factory=dict)
    dense_at: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    last: int = -1
    charges: tuple[Charge, ...] = ()
    network_s: float = 0.0
    decode_s: float = 0.0
    summed: int = 0
    compresses: bool = False


class PlanMessages:
    """Prices the messages of plans of one profile on one system, each different one once."""

    def __init__(self, system: Times, selection: SelectionStats = AS_PLANNED, *, notes: bool = False) -> None:
        self.system = system
        self.prices = Prices(system, selection, notes=notes)
        self._same: dict[int, tuple[Lane, Message]] = {}  # with the lane, so that its identity stays its own
        self._equal: dict[Lane, Message] = {}

    def of(self, plan: Plan) -> list[list[Message]]:
        """Return the messages of every bucket of `plan`, launched or not."""
        lanes = [lane for bucket in plan.buckets for lane in bucket.lanes]
        same, equal = self._same, self._equal
        new = []
        for lane in lanes:
            if id(lane) not in same:
                found = equal.get(lane)
                if found is None:
                    new.append(lane)
                else:
                    same[id(lane)] = lane, found
        for lane, message in zip(new, _priced(new, plan, self.prices), strict=True):
            equal[lane] = message
            same[id(lane)] = lane, message
        return [[same[id(lane)][1] for lane in bucket.lanes] for bucket in plan.buckets]


def _priced(lanes: list[Lane], plan: Plan, prices: Prices) -> list[Message]:
    """Return the messages of `lanes`; what has a compressor or a collective in common is priced in one array."""
    messages = [Message("", False) for _ in lanes]
    rows: list[Row] = []
    for number, lane in enumerate(lanes):
        rows += [(number, segment, plan.once(segment, lambda one: _facts(plan, one))) for segment in lane.segments]
    if not rows:
        return messages
    table = np.array([facts.features for *_, facts in rows], dtype=float).T.reshape(COUNT, len(rows))
    owner = np.array([number for number, *_ in rows])
    whole = np.zeros((COUNT, len(lanes)))
    np.add.at(whole.T, owner, table.T)
    specs = [segment.compressor if facts.features[CALLS] else None for _, segment, facts in rows]
    for spec in dict.fromkeys(specs):
        mine = np.array([i for i, one in enumerate(specs) if one == spec])
        if spec is not None:
            _add_calls(spec, mine, rows, table, prices, messages)
            _add_decoding(spec, mine, table, owner, lanes, prices, messages)
    _add_exchanges(lanes, whole, prices, messages)
    lasts = [-1] * len(lanes)
    for number, _, facts in rows:
        lasts[number] = max(lasts[number], facts.last)
        _add_device(messages[number], facts, prices)
    for last, message in zip(lasts, messages, strict=True):
        message.added_s[last] = message.added_s.get(last, 0.0) + prices.system.overheads.lane_s
        handed = [*message.dense_at, *(call.at for call in message.calls if not call.on_host)]
        message.last = max(handed, default=-1)
        message.calls.sort(key=lambda call: call.at)
    return messages


@dataclass(frozen=True, slots=True)
class _Facts:
    """What every plan of a model knows of a segment: features, positions and bytes of its tensors, last position."""

    features: tuple[float, ...]
    positions: list[int]
    nbytes: list[int]
    last: int


Row = tuple[int, Segment, _Facts]
"""The number of a message, a segment of it, and what is known of that."""


def _facts(plan: Plan, segment: Segment) -> _Facts:
    specs = [plan.by_name[name] for name in segment.tensors]
    positions = [plan.order[name] for name in segment.tensors]
    numel, nbytes = sum([spec.numel for spec in specs]), [spec.nbytes for spec in specs]
    if segment.compressor is None or not numel:
        features = plain(numel, sum(nbytes), len(specs))
    else:
        features = compressed(segment.compressor, tuple([spec.shape for spec in specs]), segment.density)
    return _Facts(features, positions, nbytes, max(positions))


def _add_calls(spec: str, mine: Ints, rows: list[Row], table: Array, prices: Prices, messages: list[Message]) -> None:
    """Add the calls of one compressor: on the host each segment's own, on the device one for all of a message's, or
    each segment's own."""
    on_host = np.array([rows[i][1].placement == "host" for i in mine.tolist()])
    hosted = mine[on_host]
    codec = prices.system.codec(spec)
    pcie = 0.0 if codec.host_copies else prices.system.pcie_s_per_byte
    if len(hosted):
        numbers = np.array([rows[i][0] for i in hosted.tolist()])
        for i, work_s in zip(hosted.tolist(), prices.host_s(spec, table[:, hosted], numbers).tolist(), strict=True):
            number, segment, facts = rows[i]
            at, features = facts.last, facts.features
            out_s, back_s = 4 * features[0] * pcie, (features[FIRST] + features[REST]) * pcie
            messages[number].calls.append(Call(at, [segment], work_s, True, out_s, back_s))
            added = messages[number].added_s
            added[at] = added.get(at, 0.0) + prices.system.overheads.offload_s
    calls: dict[int, list[int]] = {}
    for i in mine[~on_host].tolist():
        calls.setdefault(rows[i][0] if prices.batched else i, []).append(i)
    if not calls:
        return
    summed = np.stack([table[:, call].sum(axis=1) for call in calls.values()], axis=1)
    numbers = np.array([rows[call[0]][0] for call in calls.values()])
    seconds = prices.call_s(spec, summed, numbers) + prices.system.overheads.add_s * summed[PACKED]
    for call, work_s in zip(calls.values(), seconds.tolist(), strict=True):
        segments = [rows[i][1] for i in call]
        at = max(rows[i][2].last for i in call)
        messages[rows[call[0]][0]].calls.append(Call(at, segments, work_s))


def _add_decoding(
    spec: str, mine: Ints, table: Array, owner: Ints, lanes: list[Lane], prices: Prices, messages: list[Message]
) -> None:
    by_collective: dict[str, list[int]] = {}
    for i in mine.tolist():
        by_collective.setdefault(lanes[owner[i]].collective, []).append(i)
    for collective, members in by_collective.items():
        if prices.batched:
            numbers = list(dict.fromkeys(owner[members].tolist()))
            found = np.zeros((COUNT, len(lanes)))
            np.add.at(found.T, owner[members], table[:, members].T)
            columns = found[:, numbers]
        else:
            numbers, columns = owner[members].tolist(), table[:, members]
        decode_s = prices.decode_s(spec, collective, columns, np.array(numbers))
        for number, seconds in zip(numbers, decode_s.tolist(), strict=True):
            messages[number].decode_s += seconds


def _add_exchanges(lanes: list[Lane], whole: Array, prices: Prices, messages: list[Message]) -> None:
    alike: dict[tuple[str, str | None], list[int]] = {}
    for number, lane in enumerate(lanes):
        spec = next((segment.compressor for segment in lane.segments if segment.compressor), None)
        alike.setdefault((lane.collective, spec), []).append(number)
    first, rest = prices.rounds(whole)
    sent, agreed = (first + rest).tolist(), (first > 0).tolist()
    for (collective, spec), numbers in alike.items():
        rows = np.array(numbers)
        blocking = collectives.build(collective).blocking
        charges = prices.charges(collective, spec, whole[:, rows], rows)
        for number, parts in zip(numbers, charges, strict=True):
            message, lane = messages[number], lanes[number]
            message.charges, message.network_s = parts, sum(charge.work_s for charge in parts)
            message.name = f"{collective} {round(sent[number])} B"
            message.blocking = blocking or agreed[number]
            specs = [segment.compressor for segment in lane.segments if segment.compressor]
            message.compresses = bool(specs)
            if sums_pairs(collective, specs):
                message.summed = sum(len(segment.tensors) for segment in lane.segments if segment.compressor)


def _add_device(message: Message, facts: _Facts, prices: Prices) -> None:
    """Add what a dense segment takes of the device: copying its gradients into the message."""
    if facts.features[CALLS] or not facts.features[0]:
        return
    message.dense_at.append(facts.last)
    fill_s = prices.system.overheads.fill_s_per_byte
    if fill_s:  # nothing else was added where these tensors are
        message.added_s.update(zip(facts.positions, [fill_s * nbytes for nbytes in facts.nbytes], strict=True))
