"""Plans of groups of tensors in arrays: every group goes by one of several ways, alone or with others in a message.

A group has one tensor with elements, beside which others without any ride along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.simulator.pricing.features import (
    FILLED,
    FIRST,
    NUMEL,
    PACKED,
    REST,
    TENSORS,
    by_size,
    compressed,
    of_joint,
    of_plain,
    plain,
)
from ssfx.simulator.pricing.flow import Backward, Flow, HostJobs
from ssfx.simulator.pricing.prices import Prices, sums_pairs

if TYPE_CHECKING:
    from ssfx.simulator.pricing.features import Array, Ints

    Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Way:
    """How a group may be sent: a collective, a compressor spec (None: dense) at a density, and whether on the host."""

    collective: str
    compressor: str | None = None
    density: float = 1.0
    on_host: bool = False


class GroupPrices:
    """Prices the groups of a profile, one message for each or several together."""

    def __init__(self, profile: Profile, costs: Costs, groups: Sequence[Sequence[TensorSpec]]) -> None:
        self.costs, self.prices, self.groups = costs, Prices(costs), groups
        self.backward = Backward(profile, costs)
        order = {spec.name: i for i, spec in enumerate(profile.tensors)}
        self.num_tensors = len(profile.tensors)
        self.last = np.array([order[group[-1].name] for group in groups])
        self.filled = np.array([order[max(group, key=lambda spec: spec.numel).name] for group in groups])
        self._tables: dict[tuple[str | None, float], Array] = {}

    def table(self, way: Way) -> Array:
        """Return the features of every group as one segment."""
        key = (way.compressor, way.density)
        if key not in self._tables:
            columns = []
            for group in self.groups:
                if way.compressor is None:
                    columns.append(
                        plain(sum(spec.numel for spec in group), sum(spec.nbytes for spec in group), len(group))
                    )
                else:
                    columns.append(compressed(way.compressor, tuple(spec.shape for spec in group), way.density))
            self._tables[key] = np.array(columns, dtype=float).T
        return self._tables[key]

    def total_s(self, ways: Sequence[Way], chosen: Ints, owner: Ints, on_the_way: bool = False) -> float:
        """Return the end of a step in which group i goes by `ways[chosen[i]]` in message `owner[i]`.

        Messages are numbered in launch order, and all groups of one go the same way. on_the_way: decoding is done
        there where each segment is a call.
        """
        over, count = self.costs.overheads, int(owner.max()) + 1
        added_s, call_s = np.zeros(self.num_tensors), np.zeros(self.num_tensors)
        last, network_s, decode_s = np.full(count, -1), np.zeros(count), np.zeros(count)
        final = np.full(count, -1)
        np.maximum.at(final, owner, self.last)
        added_s[final] = over.lane_s
        after_s, jobs = 0.0, []
        for number in np.unique(chosen).tolist():
            way, mine = ways[number], np.flatnonzero(chosen == number)
            table, messages = self.table(way)[:, mine], owner[mine]
            used, inverse = np.unique(messages, return_inverse=True)
            summed = np.zeros((len(table), len(used)))
            np.add.at(summed.T, inverse, table.T)
            network_s[used] = self.prices.exchange_s(way.collective, way.compressor, summed)
            if way.compressor is None:
                added_s[self.filled[mine]] += over.fill_s_per_byte * table[FILLED]
                np.maximum.at(last, messages, self.last[mine])
                continue
            after_s += self._decoding(way, table, summed, inverse, used, decode_s)
            if way.on_host:
                jobs.append((self.last[mine], messages, *self._host(way, table)))
                added_s[self.last[mine]] += over.offload_s
                continue
            np.maximum.at(last, messages, self.last[mine])
            batched = self.prices.batched
            at, calls = (last[used], summed) if batched else (self.last[mine], table)
            call_s[at] = self.prices.call_s(way.compressor, calls) + over.add_s * calls[PACKED]
        if any(ways[number].compressor for number in np.unique(chosen).tolist()):
            after_s += over.decode_s
        if on_the_way and not self.prices.batched:
            network_s += decode_s
        else:
            after_s += float(decode_s.sum())
        host = None
        if jobs:
            columns = [np.concatenate(column) for column in zip(*jobs, strict=True)]
            order = np.argsort(columns[0])
            host = HostJobs(*(column[order] for column in columns))
        return self.backward.total_s(Flow(added_s, call_s, last, network_s, after_s, host))

    def _decoding(self, way: Way, table: Array, summed: Array, inverse: Ints, used: Ints, decode_s: Array) -> float:
        """Add what decoding takes to the messages; return what adding pairs up takes more than averaging."""
        spec, over = str(way.compressor), self.costs.overheads
        if self.prices.batched:
            decode_s[used] = self.prices.decode_s(spec, way.collective, summed)
        else:
            np.add.at(decode_s, used[inverse], self.prices.decode_s(spec, way.collective, table))
        if not sums_pairs(way.collective, (spec,)):
            return 0.0
        return (over.sum_s - over.result_s) * float(table[PACKED].sum())

    def _host(self, way: Way, table: Array) -> tuple[Array, Array, Array]:
        spec = str(way.compressor)
        pcie = 0.0 if self.costs.codec(spec).host_copies else self.costs.pcie_s_per_byte
        return 4 * pcie * table[NUMEL], self.prices.host_s(spec, table), pcie * (table[FIRST] + table[REST])


class JointPrices:
    """Prices ranges of a profile's tensors, each one message of one segment; each dtype is cut on its own."""

    def __init__(self, profile: Profile, costs: Costs, parts: Sequence[Profile]) -> None:
        self.costs, self.prices, self.parts = costs, Prices(costs), parts
        self.backward = Backward(profile, costs)
        order = {spec.name: i for i, spec in enumerate(profile.tensors)}
        self.positions = [np.array([order[spec.name] for spec in part.tensors]) for part in parts]
        self.numel = [np.array(part.numel, dtype=float) for part in parts]
        self.nbytes = [np.array([spec.nbytes for spec in part.tensors], dtype=float) for part in parts]

    def total_s(self, way: Way, cuts: Sequence[Sequence[range]]) -> float:
        """Return the end of a step in which the ranges of every dtype go one way."""
        over, spec = self.costs.overheads, way.compressor
        added_s, call_s = (np.zeros(sum(len(one) for one in self.positions)) for _ in range(2))
        tables, lasts = [], []
        for number, ranges in enumerate(cuts):
            table, last = self._table(way, number, ranges), self.positions[number][[at.stop - 1 for at in ranges]]
            tables.append(table)
            lasts.append(last)
            if spec is None:
                added_s[self.positions[number]] = over.fill_s_per_byte * self.nbytes[number]
        table, last = np.concatenate(tables, axis=1), np.concatenate(lasts)
        order = np.argsort(last)
        table, last = table[:, order], last[order]
        added_s[last] += over.lane_s
        after_s = 0.0
        if spec is not None:
            call_s[last] = np.where(table[NUMEL] > 0, self.prices.call_s(spec, table) + over.add_s * table[PACKED], 0.0)
            after_s = over.decode_s + float(self.prices.decode_s(spec, way.collective, table).sum())
            if sums_pairs(way.collective, (spec,)):
                after_s += (over.sum_s - over.result_s) * float(table[PACKED].sum())
        sent = table[NUMEL] > 0
        network_s = self.prices.exchange_s(way.collective, spec, table[:, sent])
        return self.backward.total_s(Flow(added_s, call_s, last[sent], network_s, after_s))

    def _table(self, way: Way, number: int, ranges: Sequence[range]) -> Array:
        starts = np.array([at.start for at in ranges])
        numel, nbytes = (np.add.reduceat(one[number], starts) for one in (self.numel, self.nbytes))
        tensors = np.array([len(at) for at in ranges], dtype=float)
        if way.compressor is None:
            table = of_plain(numel, nbytes)
            table[TENSORS] = tensors
            return table
        if by_size(way.compressor):
            return of_joint(way.compressor, numel, tensors, way.density)
        shapes = [tuple(spec.shape for spec in self.parts[number].tensors[at.start : at.stop]) for at in ranges]
        return np.array([
            compressed(way.compressor, one, way.density) if n else plain(0, 0)
            for one, n in zip(shapes, numel.tolist(), strict=True)
        ], dtype=float).T  # fmt: skip
