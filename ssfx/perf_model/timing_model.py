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
from itertools import combinations
from typing import Any, Literal

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve

Style = Literal["runtime", "reference"]
_EXCHANGES = ("exchange", "beside", "cpu", "queued", "queued_beside", "queued_cpu")


@dataclass(frozen=True)
class CompressorTimes:
    """Seconds of one compressor on one kind of device.

    encode: work of a call (see `Compressor.work`; elements for most) -> seconds on the device, residual update
    included. `segment_s` is added for every further segment of the same call, `piece_s` for every further piece of a
    segment (see `Compressor.pieces`), `tensor_s` for every further tensor that is no piece. host: the same on the
    host's cores; where `host_copies`, copying to the host and back is in it. decode: entries received -> seconds;
    entries are pairs of index and value for sparse payloads, work units for others.
    """

    encode: Curve
    host: Curve
    decode: Curve
    origin: Origin
    segment_s: float = 0.0
    piece_s: float = 0.0
    tensor_s: float = 0.0
    host_copies: bool = False


@dataclass(frozen=True)
class Overheads:
    """What the runtime itself costs a rank's training thread.

    hook_s: one gradient that arrives. add_s: what it costs more if it is to be compressed. fill_s_per_byte: copying a
    dense gradient into its message. lane_s: issuing a message. result_s, result_s_per_byte: checking what was received
    and writing the average, per tensor and per byte of the whole gradient. finish_s: once a step. offload_s: handing a
    segment over to the thread that compresses on the host, which has to wake up. sum_s: writing the average of a tensor
    of which pairs of index and value were gathered, instead of result_s; decode_s: once where anything is decoded.
    """

    hook_s: float = 0.0
    add_s: float = 0.0
    fill_s_per_byte: float = 0.0
    lane_s: float = 0.0
    result_s: float = 0.0
    result_s_per_byte: float = 0.0
    finish_s: float = 0.0
    offload_s: float = 0.0
    sum_s: float = 0.0
    decode_s: float = 0.0


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
    style: how a plan is executed. "runtime" is what the runtime here does: one compressor call for all device segments
    of a lane, decoding when everything has arrived. "reference" is what published codes do and F(plan) assumes: one
    call for each segment, decoding where the plan says. host_shares: offloaded work takes its time from the training
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
    overheads: Overheads = Overheads()
    style: Style = "runtime"
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
        """Return the times of a compressor; ConfigError names those that have some.

        Some options change the time of a unit of work, most do not: the times are of as many of them as have some.
        """
        name, _, rest = spec.partition("(")
        options = rest.rstrip(")").split(",") if rest else []
        for count in range(len(options), -1, -1):
            for some in combinations(options, count):
                known = f"{name}({','.join(some)})" if some else name
                if known in self.codecs:
                    return self.codecs[known]
        raise ConfigError(
            f"no times for compressor {name} on {self.name}; there are some for "
            f"{', '.join(sorted(self.codecs)) or 'none'}: measure it with ssfx profile compressors"
        )

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

    def planning_costs(self, compressor: str | None, density: float | None) -> Costs:
        """Return the costs by which schemes plan for one compressor (a spec; None: dense) at one density."""
        if compressor is None:
            zero = Curve.zero()
            return Costs(self.world_size, zero, zero, zero, self.exchange, self.origin)
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
            _stretched(codec.decode, per_element), self.exchange, codec.origin,
        )  # fmt: skip

    def to_json(self) -> str:
        """Return the system as JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TimingModel:
        """Return the system that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        for key, build_one in (("codecs", _codec), *((name, Curve.of) for name in _EXCHANGES)):
            raw[key] = {name: build_one(value) for name, value in raw.get(key, {}).items()}
        raw["overheads"] = Overheads(**raw["overheads"])
        raw["origin"] = Origin(**raw["origin"])
        return cls(**raw)

    @property
    def digest(self) -> str:
        """First 8 hex digits of the SHA-256 of the JSON text: which calibration a simulated number rests on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:8]


def _codec(raw: dict[str, Any]) -> CompressorTimes:
    curves = {key: Curve.of(raw[key]) for key in ("encode", "host", "decode")}
    return CompressorTimes(**{**raw, **curves, "origin": Origin(**raw["origin"])})


def _stretched(curve: Curve, units: float) -> Curve:
    """Return the curve over sizes of which each stands for `units` units of the given one."""
    return Curve(tuple(size / units for size in curve.sizes), curve.seconds, curve.unbounded)
