"""The one list of prices: seconds of compressor calls, exchanges and decoding as functions of features, in arrays.

Everything that prices anything asks here, with a table of features (`features`) of as many messages, calls or ranges of
tensors as it likes; one bucket is a table of one column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.collectives import Load, Phase, Reducer, collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import Costs, Curve, MeasuredCurve
from ssfx.simulator.pricing.features import (
    ASKED,
    CALLS,
    FIRST,
    KEPT,
    NUMEL,
    PACKED,
    PIECES,
    REST,
    ROOM,
    SEGMENTS,
    UNUSED,
    WORK,
)
from ssfx.simulator.pricing.selection_stats import SelectionStats

if TYPE_CHECKING:
    from ssfx.simulator.pricing.features import Array, Ints

Times = Costs | TimingModel
"""What is known about time: by a planner, or by a simulation, which also knows what tasks at the same time cost."""

AS_PLANNED = SelectionStats()


@dataclass(frozen=True, slots=True)
class Charge:
    """What a part of an exchange takes: fields as those of Task."""

    work_s: float
    demand: float
    under_compute: tuple[float, ...] | None = None
    wire_s: float = 0.0

    def joins(self, other: Charge) -> bool:
        """Return whether both can be one task."""
        return (self.under_compute is None) == (other.under_compute is None) and self.demand == other.demand

    def __add__(self, other: Charge) -> Charge:
        both = None
        if self.under_compute and other.under_compute:
            both = tuple(a + b for a, b in zip(self.under_compute, other.under_compute, strict=True))
        return Charge(self.work_s + other.work_s, self.demand, both, self.wire_s + other.wire_s)

    def times(self, count: int) -> Charge:
        """Return what `count` such parts take, one after the other."""
        if count == 1:
            return self
        both = self.under_compute and tuple(count * seconds for seconds in self.under_compute)
        return Charge(count * self.work_s, self.demand, both, count * self.wire_s)


class Prices:
    """The prices on one system. Tables have a column for each message or call, as `features` makes them.

    `notes`: whether to collect what is charged beyond the range its curve is known for, for `outside`; the rows that
    methods take are the numbers of messages by which these lines are ordered.
    """

    def __init__(self, system: Times, selection: SelectionStats = AS_PLANNED, *, notes: bool = False) -> None:
        self.system, self.selection, self.world_size = system, selection, system.world_size
        self.batched = system.style == "batched"
        self.by_elements = isinstance(system, Costs) and not system.times
        self._notes: dict[str, tuple[int, int, str]] | None = {} if notes else None
        self._exchanges: dict[tuple[str, str | None, Load], tuple[Charge, ...]] = {}

    @property
    def outside(self) -> tuple[str, ...]:
        """Return a line for everything that was charged beyond its known range, in the order of messages."""
        return tuple(text for *_, text in sorted((self._notes or {}).values()))

    # ---- compressor calls ---------------------------------------------------------------------------------------

    def host_s(self, spec: str, table: Array, rows: Ints | None = None) -> Array:
        """Return the seconds of compressing each column's segment on the host."""
        work = table[NUMEL] if self.by_elements else table[WORK]
        return self._at(f"{spec} on the host", self.system.codec(spec).host, work, rows)

    def call_s(self, spec: str, table: Array, rows: Ints | None = None) -> Array:
        """Return the seconds of one call for the compressed segments of each column; zero where it has none."""
        codec, calls = self.system.codec(spec), table[CALLS]
        found = self._at(spec, codec.encode, table[NUMEL] if self.by_elements else table[WORK], rows)
        if codec.segment_s or codec.piece_s or codec.tensor_s:
            more = codec.segment_s * (calls - 1) + codec.piece_s * (table[PIECES] - calls)
            found = found + more + codec.tensor_s * np.maximum(0.0, table[PACKED] - table[PIECES])
        return np.where(calls > 0, found, 0.0)

    def decode_s(
        self, spec: str, collective: str, table: Array, rows: Ints | None = None, *, ranks: int | None = None
    ) -> Array:
        """Return the seconds of decoding each column in one call; of columns added up, their calls are (`batched`).

        `ranks`: from how many ranks a message comes, where not from all.
        """
        one, codec = collectives.build(collective), self.system.codec(spec)
        once = one.additive_only or (isinstance(one, Reducer) and one.decodes_once)
        if self.by_elements:
            share = 1 / self.world_size if once and isinstance(one, Reducer) else 1.0
            return share * codec.decode.many(table[NUMEL])
        room = table[ROOM]
        if not self.batched:  # a message may have room for more than is asked for; batched, padding is added up too
            room = np.minimum(room, table[ASKED] * self.selection.ratio(spec))
        entries = np.where(table[ROOM] > 0, room, table[WORK])
        return self._at(f"{spec} decoded", codec.decode, entries * (1 if once else ranks or self.world_size), rows)

    # ---- exchanges --------------------------------------------------------------------------------------------------

    def exchange_s(self, collective: str, spec: str | None, table: Array) -> Array:
        """Return the seconds of each column's exchange with compressor `spec`, undisturbed."""
        if collective in self.system.exchange and self.selection is AS_PLANNED:
            first, rest = self.rounds(table)
            curve = self.system.exchange[collective]
            found = curve.many(rest)
            return found + curve.many(first) if first.any() else found
        charges = self.charges(collective, spec, table)
        return np.array([sum(charge.work_s for charge in parts) for parts in charges])

    def charges(
        self, collective: str, spec: str | None, table: Array, rows: Ints | None = None
    ) -> list[tuple[Charge, ...]]:
        """Return the parts of each column's exchange, those that are alike together."""
        first, rest = self.rounds(table)
        system, plain = self.system, self._notes is None and self.selection is AS_PLANNED
        if isinstance(system, Costs) and plain and collective in system.exchange and not first.any():
            # Bytes are all that the exchange depends on: planners know nothing else about it.
            seconds, share = system.exchange[collective].many(rest), system.occupancy.get(collective, 0.0)
            sent = zip(seconds.tolist(), rest.tolist(), strict=True)
            return [(Charge(work_s, share),) if nbytes else () for work_s, nbytes in sent]
        numel, kept = table[NUMEL].tolist(), table[KEPT].tolist()
        numbers = range(len(numel)) if rows is None else rows.tolist()
        found = []
        for row, n, k, first_bytes, rest_bytes in zip(numbers, numel, kept, first.tolist(), rest.tolist(), strict=True):
            parts: tuple[Charge, ...] = ()
            for nbytes in (first_bytes, rest_bytes):
                load = Load(int(n), int(nbytes), int(k), self.world_size)
                parts = _merged(parts, self._of_load(collective, spec, load, row)) if nbytes else parts
            found.append(parts)
        return found

    def load_s(self, collective: str, spec: str | None, load: Load) -> float:
        """Return the seconds of one exchange of a load of compressor `spec`, undisturbed."""
        return sum([charge.work_s for charge in self._of_load(collective, spec, load, 0)])

    def primitive(self, name: str, nbytes: float, row: int, *, inside: bool = False) -> Charge:
        """Return the charge of one primitive to which every rank brings so many bytes, `inside` a node or among all.

        ConfigError without times.
        """
        return self._phase(None, Load.dense(round(nbytes), self.world_size), Phase(name, nbytes, inside), row)

    def rounds(self, table: Array) -> tuple[Array, Array]:
        """Return the bytes of the first round, and those of the other one as the mean over its lengths."""
        if not table[UNUSED].any():
            return table[FIRST], table[REST]
        unused = np.where(table[SEGMENTS] == 1, 4 * np.ceil(table[UNUSED] - 1e-9), 0.0)
        return table[FIRST], table[REST] - unused

    def _of_load(self, collective: str, spec: str | None, load: Load, row: int) -> tuple[Charge, ...]:
        key = (collective, spec, load)
        parts = self._exchanges.get(key)
        if parts is None:
            load = self.selection.real(load, collective, (spec,))
            if not load.nbytes:
                parts = ()
            elif collective in self.system.exchange:
                parts = (self._on_network(collective, load.nbytes, row),)
            else:
                parts = ()
                for phase in collectives.build(collective).phases(load):
                    parts = _merged(parts, (self._phase(spec, load, phase, row).times(phase.times),))
            self._exchanges[key] = parts
        return parts

    def _phase(self, spec: str | None, load: Load, phase: Phase, row: int) -> Charge:
        if phase.primitive in ("encode", "decode"):
            assert spec is not None
            codec, compressor = self.system.codec(spec), build(spec)
            if self.by_elements:
                return Charge((codec.encode if phase.primitive == "encode" else codec.decode)(phase.size), 1.0)
            units = phase.size * compressor.work([(load.numel,)]) / load.numel
            if phase.primitive == "encode":
                return Charge(self._one(f"{spec} on the way", codec.encode, units, row), 1.0)
            entries = load.world_size * (phase.size * load.kept / load.numel if compressor.sparse else units)
            return Charge(self._one(f"{spec} on the way, decoded", codec.decode, entries, row), 1.0)
        inside = f"{phase.primitive}_inside"
        primitive = inside if phase.inside and inside in self.system.exchange else phase.primitive
        if primitive not in self.system.exchange:
            where = "in the costs" if isinstance(self.system, Costs) else f"on {self.system.name}"
            raise ConfigError(
                f"no times for {primitive} {where}; there are some for "
                f"{', '.join(sorted(self.system.exchange))}: measure it with ssfx profile network"
            )
        return self._on_network(primitive, phase.size, row)

    def _on_network(self, primitive: str, nbytes: float, row: int) -> Charge:
        curve = self.system.exchange[primitive]
        work_s = self._one(primitive, curve, nbytes, row)
        if isinstance(self.system, Costs):
            return Charge(work_s, self.system.occupancy.get(primitive, 0.0))
        contention = self.system.contention
        under_compute: tuple[float, float] | None = None
        if primitive in contention.under_compute_s:
            seconds = self._one(f"{primitive} under compute", contention.under_compute_s[primitive], nbytes, row)
            under_compute = (seconds, contention.under_compute_cpu_s[primitive](nbytes))
        shared = contention.in_flight > 1 or self.system.burst_s
        wire_s = work_s - min(work_s, curve.seconds[0]) if shared else 0.0
        return Charge(work_s, contention.occupancy.get(primitive, 0.0), under_compute, wire_s)

    # ---- curves -----------------------------------------------------------------------------------------------------

    def _at(self, what: str, curve: Curve, sizes: Array, rows: Ints | None) -> Array:
        if self._notes is not None and not curve.unbounded:
            beyond = (sizes != 0) & ((sizes < curve.sizes[0]) | (sizes > curve.sizes[-1]))
            if beyond.any():
                at = int(beyond.argmax())
                self._note(what, curve, float(sizes[at]), at if rows is None else int(rows[at]))
        return curve.many(sizes)

    def _one(self, what: str, curve: Curve, size: float, row: int) -> float:
        if self._notes is not None and not curve.covers(size):
            self._note(what, curve, size, row)
        return curve(size)

    def _note(self, what: str, curve: Curve, size: float, row: int) -> None:
        assert self._notes is not None
        known = f"{curve.sizes[0]:,.0f} .. {curve.sizes[-1]:,.0f} is known"
        if isinstance(curve, MeasuredCurve):
            known = f"{curve.range_text} was measured"
            if curve.refuses(size):
                where = getattr(self.system, "name", "") or "this cluster"
                raise ConfigError(
                    f"{what} of {size:,.0f} bytes a rank is more than 8 times beyond what is known on {where}: "
                    f"{known}; import a log that goes further, or drop exchanges from the file"
                )
        text = f"{what}: {size:,.0f} where {known}"
        if what not in self._notes or row < self._notes[what][0]:
            self._notes[what] = (row, len(self._notes), text)


def _merged(parts: tuple[Charge, ...], more: Sequence[Charge]) -> tuple[Charge, ...]:
    for charge in more:
        parts = (*parts[:-1], parts[-1] + charge) if parts and parts[-1].joins(charge) else (*parts, charge)
    return parts


def sums_pairs(collective: str, specs: Collection[str]) -> bool:
    """Return whether the runtime adds what a message gathered straight into the gradients: pairs of every rank."""
    one = collectives.build(collective)
    gathered = not one.additive_only and not isinstance(one, Reducer)
    return bool(specs) and gathered and all(build(spec).sparse and not build(spec).vote for spec in specs)
