"""The TimingModel: what a simulation knows about time besides the plan and the profile, and where it knows it from.

It describes `world_size` equal ranks on one cluster: what compressors take on its devices, what its collectives
take, and how much of a rank's computing power an exchange takes away while it runs. The same object prices plans
(`planning_costs`) and executes them in virtual time (`ssfx.simulator`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ssfx.compressors import build
from ssfx.core.origin import Origin
from ssfx.planning.costs import CompressorTimes, Costs, Curve, Overheads, Style, times_of

_EXCHANGES = ("exchange", "beside", "cpu", "queued", "queued_beside", "queued_cpu")
_STYLES = {"runtime": "batched", "reference": "per_call"}
"""What styles were called in older files."""


@dataclass(frozen=True)
class TimingModel:
    """`world_size` ranks of a cluster, as times.

    exchange: primitive (or collective) -> seconds over the bytes one rank contributes, when nothing else runs.
    occupancy: primitive -> share of the rank's computing power that an exchange takes while it runs, in [0, 1].
    beside, cpu: where it was measured, the seconds of the same exchange while every rank computes, and the computing
    power it costs, in seconds of all that the rank has; they say more than the occupancy, which then does not count.
    in_flight: how many exchanges are worked on at a time; they start in order and share the wire. queued,
    queued_beside, queued_cpu: where they were measured, the seconds of an exchange among several that were issued at
    once (their time over their number), alone and while every rank computes, and the computing power it then uses.
    burst_s: how much time on the wire an exchange saves on a line that has rested as long (token buckets).
    style: how a plan is executed. "batched" is what the runtime here does: one compressor call for all device segments
    of a lane, decoding when everything has arrived. "per_call" is what published codes do: one call for each segment,
    decoding where the plan says. host_shares: offloaded work takes its time from the training
    thread's cores, as on a machine without a GPU. pcie_s_per_byte: copying between device and host, one way.
    yardstick_s: how fast the machine computed when this was measured, 0 where that is not known.
    """

    name: str
    world_size: int
    codecs: Mapping[str, CompressorTimes]
    exchange: Mapping[str, Curve]
    origin: Origin
    occupancy: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, Curve] = field(default_factory=dict)
    cpu: Mapping[str, Curve] = field(default_factory=dict)
    in_flight: int = 1
    queued: Mapping[str, Curve] = field(default_factory=dict)
    queued_beside: Mapping[str, Curve] = field(default_factory=dict)
    queued_cpu: Mapping[str, Curve] = field(default_factory=dict)
    burst_s: float = 0.0
    overheads: Overheads = Overheads()  # noqa: RUF009  frozen
    style: Style = "batched"
    host_shares: bool = False
    pcie_s_per_byte: float = 0.0
    yardstick_s: float = 0.0

    def __post_init__(self) -> None:
        if self.beside.keys() != self.cpu.keys():
            raise ValueError("what an exchange takes beside computing needs both its time and its computing power")
        queued = self.queued.keys()
        if not queued == self.queued_beside.keys() == self.queued_cpu.keys() or not queued <= self.beside.keys():
            raise ValueError("what a queued exchange takes must be known alone and beside computing")
        for primitive, share in self.occupancy.items():
            if not 0 <= share <= 1:
                raise ValueError(f"occupancy of {primitive} must be in [0, 1], got {share}")

    def codec(self, spec: str) -> CompressorTimes:
        """Return the times of a compressor; ConfigError names those that have some."""
        return times_of(spec, self.codecs, self.name)

    def computing_at(self, pace: float) -> TimingModel:
        """Return the system with everything that is computed taking `pace` times as long.

        Of exchanges alone that is their occupancy. Beside computing they wait for a turn, whatever the pace.
        """
        codecs = {
            name: replace(
                codec, encode=codec.encode.scaled(pace), host=codec.host.scaled(pace), decode=codec.decode.scaled(pace),
                segment_s=pace * codec.segment_s, piece_s=pace * codec.piece_s, tensor_s=pace * codec.tensor_s,
            )
            for name, codec in self.codecs.items()
        }  # fmt: skip
        cpu, queued_cpu = (
            {name: curve.scaled(pace) for name, curve in curves.items()} for curves in (self.cpu, self.queued_cpu)
        )
        exchange, queued = (
            {name: curve.scaled(1.0 + self.occupancy.get(name, 0.0) * (pace - 1.0)) for name, curve in curves.items()}
            for curves in (self.exchange, self.queued)
        )
        overheads = Overheads(**{name: pace * value for name, value in asdict(self.overheads).items()})
        return replace(
            self, codecs=codecs, overheads=overheads, cpu=cpu, queued_cpu=queued_cpu, exchange=exchange, queued=queued
        )

    def at_yardstick(self, yardstick_s: float) -> TimingModel:
        """Return the system as if measured when the machine had this pace; as it is if either pace is unknown."""
        if not (self.yardstick_s and yardstick_s):
            return self
        return replace(self.computing_at(yardstick_s / self.yardstick_s), yardstick_s=yardstick_s)

    def at_bandwidth(self, factor: float) -> TimingModel:
        """Return the model of a network with `factor` times the bandwidth and the same latency."""
        exchange, beside = (
            {name: curve.at_rate(factor) for name, curve in curves.items()} for curves in (self.exchange, self.beside)
        )
        return replace(self, exchange=exchange, beside=beside)

    def planning_costs(self, compressor: str | None, density: float | None) -> Costs:
        """Return the costs by which schemes plan for one compressor (a spec; None: dense) at one density."""
        if compressor is None:
            zero = Curve.zero()
            return Costs(
                self.world_size, zero, zero, zero, self.exchange, self.origin, self.style, {}, self.overheads,
                self.host_shares, self.pcie_s_per_byte,
            )  # fmt: skip
        codec, one = self.codec(compressor), build(compressor)
        kept = density or 1.0
        units = one.work([(2**10, 2**10)]) / 2**20  # work of an element
        copies = 1 if one.additive else self.world_size
        indices = one.layout(2**20, kept).indices
        per_element = copies * (min(kept, indices / 2**20) if indices else units)
        host = _stretched(codec.host, units)
        if not codec.host_copies:  # out as it is, back as a payload
            host = host.plus(self.pcie_s_per_byte * (4 + one.layout(2**20, kept).nbytes / 2**20))
        return Costs(
            self.world_size, _stretched(codec.encode, units), host,
            _stretched(codec.decode, per_element), self.exchange, codec.origin, self.style, {compressor: codec},
            self.overheads, self.host_shares, self.pcie_s_per_byte,
        )  # fmt: skip

    def to_json(self) -> str:
        """Return the system as JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TimingModel:
        """Return the system that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        raw["style"] = _STYLES.get(raw["style"], raw["style"])
        for key, build_one in (("codecs", CompressorTimes.of), *((name, Curve.of) for name in _EXCHANGES)):
            raw[key] = {name: build_one(value) for name, value in raw.get(key, {}).items()}
        raw["overheads"] = Overheads(**raw["overheads"])
        raw["origin"] = Origin(**raw["origin"])
        return cls(**raw)

    @property
    def digest(self) -> str:
        """First 8 hex digits of the SHA-256 of the JSON text: which calibration a simulated number rests on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:8]


def _stretched(curve: Curve, units: float) -> Curve:
    """Return the curve over sizes of which each stands for `units` units of the given one."""
    return Curve(tuple(size / units for size in curve.sizes), curve.seconds, curve.unbounded)
