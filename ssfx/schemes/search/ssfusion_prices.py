"""What SSFusion's buffers take, in arrays: each different buffer is priced once, and a plan of them is put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.schemes.carrier import Carrier
from ssfx.schemes.search.shared import shared
from ssfx.simulator.pricing.features import FIRST, NUMEL, PACKED, REST, of_plain, of_tensors
from ssfx.simulator.pricing.flow import Flow, HostJobs
from ssfx.simulator.pricing.prices import Prices, sums_pairs

if TYPE_CHECKING:
    from ssfx.simulator.pricing.features import Array, Flags, Ints


@dataclass(frozen=True)
class Buffer:
    """What was decided for the tensors at `at`: positions count from 0 inside the buffer.

    `dense` tensors before `split` are all-reduced, everything else is gathered; `host` tensors are compressed there.
    """

    at: range
    dense: frozenset[int]
    density: float
    host: frozenset[int] = frozenset()
    split: int = 0


@dataclass(frozen=True, slots=True)
class BufferPrice:
    """A buffer in seconds; see Flow. Positions are those of the profile, messages are numbered from 0.

    key: equal for buffers that are sent alike. out_s, host_s, back_s: of the jobs at `jobs`, all of message `gathered`.
    after_s: decoding. packed: compressed tensors. sent: collective and features of each message, for any network.
    """

    key: object
    added_s: Array
    call_s: Array
    last: tuple[int, ...]
    sent: tuple[tuple[str, Array], ...]
    after_s: float
    packed: int
    jobs: Ints
    gathered: int
    out_s: Array
    host_s: Array
    back_s: Array
    network_s: tuple[float, ...] = ()


class BufferPrices:
    """Prices the buffers of one dtype's tensors; what has nothing to do with the network once for all networks."""

    def __init__(self, part: Profile, costs: Costs, carrier: Carrier, late_dense_index: bool) -> None:
        self.costs, self.prices = costs, Prices(costs)
        self.spec, self.collective, self.late_dense_index = (
            str(carrier.compressor),
            carrier.collective,
            late_dense_index,
        )
        self.numel = np.array(part.numel, dtype=float)
        self.nbytes = np.array([spec.nbytes for spec in part.tensors], dtype=float)
        self.shapes = [spec.shape for spec in part.tensors]
        self._known: dict[Buffer, BufferPrice] = {}
        self._alike: dict[object, BufferPrice] = {}
        codec = costs.codec(self.spec)
        times = tuple([getattr(codec, one.name) for one in fields(codec) if one.name != "origin"])
        system = (costs.world_size, costs.style, costs.overheads, costs.pcie_s_per_byte, bool(costs.times), times)
        self._anywhere: dict[object, BufferPrice]
        self._anywhere = shared(part, None, ("buffers", carrier, late_dense_index, system), dict)

    def of(self, buffer: Buffer) -> BufferPrice:
        """Return the price of a buffer."""
        found = self._known.get(buffer)
        if found is None:
            numel = self.numel[buffer.at.start : buffer.at.stop]
            dense, reduced, host = (np.zeros(len(buffer.at), dtype=bool) for _ in range(3))
            dense[list(buffer.dense)], host[list(buffer.host)] = True, True
            reduced[[i for i in buffer.dense if i < buffer.split]] = True
            packed = ~dense & (numel > 0)
            key = (buffer.at, reduced.tobytes(), packed.tobytes(), host.tobytes(), packed.any() and buffer.density)
            found = self._alike.get(key)
            if found is None:
                local = self._anywhere.get(key)
                if local is None:
                    local = self._anywhere[key] = self._priced(key, buffer, dense, reduced, host)
                price = self.prices.exchange_s
                network_s = tuple([float(price(kind, self.spec, table)[0]) for kind, table in local.sent])
                found = self._alike[key] = replace(local, network_s=network_s)
            self._known[buffer] = found
        return found

    def _priced(self, key: object, buffer: Buffer, dense: Flags, reduced: Flags, host: Flags) -> BufferPrice:
        over, prices, spec = self.costs.overheads, self.prices, self.spec
        here = slice(buffer.at.start, buffer.at.stop)
        numel, nbytes, filled = self.numel[here], self.nbytes[here], self.numel[here] > 0
        late = dense & ~reduced & filled & self.late_dense_index  # gathered with all its indices
        packed = ~dense & filled | late
        plain = of_plain(numel, nbytes)
        table = np.where(packed, of_tensors(spec, self.shapes[here], numel, np.where(late, 1.0, buffer.density)), plain)
        added_s = np.where(packed, 0.0, over.fill_s_per_byte * nbytes)
        call_s = self._calls(table, packed & ~host) if packed.any() else np.zeros(len(numel))
        last, sent = [], []
        for members, collective in ((reduced, "all_reduce"), (~reduced, self.collective)):
            if not members.any():
                continue
            positions = np.flatnonzero(members)
            added_s[positions[-1]] += over.lane_s
            summed = table[:, members].sum(axis=1, keepdims=True)
            if summed[NUMEL, 0]:
                handed = np.flatnonzero(members & filled & ~host)
                last.append(buffer.at.start + int(handed[-1]) if len(handed) else -1)
                sent.append((collective, summed))
        after_s = 0.0
        if packed.any():
            columns = table[:, packed]
            columns = columns.sum(axis=1, keepdims=True) if prices.batched else columns
            after_s = float(prices.decode_s(spec, self.collective, columns).sum())
            if sums_pairs(self.collective, (spec,)):
                after_s += (over.sum_s - over.result_s) * float(table[PACKED, packed].sum())
        jobs = np.flatnonzero(host & packed)
        moved, pcie = table[:, jobs], self.costs.pcie_s_per_byte
        pcie = 0.0 if prices.system.codec(spec).host_copies else pcie
        added_s[jobs] += over.offload_s
        return BufferPrice(
            key, added_s, call_s, tuple(last), tuple(sent), after_s, int(packed.sum()), buffer.at.start + jobs,
            len(last) - 1, 4 * pcie * moved[NUMEL], prices.host_s(spec, moved) if len(jobs) else moved[NUMEL],
            pcie * (moved[FIRST] + moved[REST]),
        )  # fmt: skip

    def _calls(self, table: Array, device: Flags) -> Array:
        """Return the seconds of the calls that tensors complete: one each, or one when the last of them is there."""
        call_s, add_s = np.zeros(table.shape[1]), self.costs.overheads.add_s
        at = np.flatnonzero(device)
        if len(at):
            calls = table[:, at].sum(axis=1, keepdims=True) if self.prices.batched else table[:, at]
            seconds = self.prices.call_s(self.spec, calls) + add_s * calls[PACKED]
            call_s[at[-1:] if self.prices.batched else at] = seconds
        return call_s


def flow_of(parts: Iterable[tuple[Ints, Sequence[BufferPrice]]], num_tensors: int, costs: Costs) -> Flow:
    """Return the flow of buffers: for each dtype the positions of its tensors in the whole, and its buffers."""
    added_s, call_s, found = np.zeros(num_tensors), np.zeros(num_tensors), []
    for positions, buffers in parts:
        added_s[positions] = np.concatenate([one.added_s for one in buffers])
        call_s[positions] = np.concatenate([one.call_s for one in buffers])
        stops = np.cumsum([len(one.added_s) for one in buffers])
        found += [(int(positions[stop - 1]), positions, one) for stop, one in zip(stops.tolist(), buffers, strict=True)]
    found.sort(key=lambda row: row[0])
    last: list[int] = []
    network_s: list[float] = []
    jobs = []
    for _, positions, one in found:
        if len(one.jobs):
            jobs.append((positions[one.jobs], np.full(len(one.jobs), len(last) + one.gathered), one))
        last += [int(positions[at]) if at >= 0 else -1 for at in one.last]
        network_s += one.network_s
    after_s = sum(one.after_s for *_, one in found)
    if any(one.packed for *_, one in found):
        after_s += costs.overheads.decode_s
    host = None
    if jobs:
        at = np.concatenate([row[0] for row in jobs])
        order = np.argsort(at)
        host = HostJobs(
            at[order], np.concatenate([row[1] for row in jobs])[order],
            *(np.concatenate([getattr(row[2], name) for row in jobs])[order] for name in ("out_s", "host_s", "back_s")),
        )  # fmt: skip
    return Flow(added_s, call_s, np.array(last, dtype=np.int64), np.array(network_s), after_s, host)
