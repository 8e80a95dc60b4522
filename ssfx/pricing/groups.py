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
from ssfx.pricing.features import FILLED, FIRST, NUMEL, PACKED, REST, compressed, plain
from ssfx.pricing.flow import Backward, Flow, HostJobs
from ssfx.pricing.prices import Prices, sums_pairs

if TYPE_CHECKING:
    from ssfx.pricing.features import Array, Ints

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
