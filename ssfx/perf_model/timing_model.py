"""The TimingModel: what a simulation knows about time besides the plan and the profile, and where it knows it from.

It describes `world_size` equal ranks on one cluster: what compressors take on its devices, what its collectives
take, and how both slow one another down. The same object prices plans (`planning_costs`) and executes them in virtual
time (`ssfx.simulator`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from typing import Any, Literal

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.old_files import up_to_date
from ssfx.core.origin import Origin
from ssfx.perf_model.contention import Contention
from ssfx.planning.costs import Costs, Curve

Style = Literal["runtime", "reference"]


@dataclass(frozen=True)
class CompressorTimes:
    """Seconds of one compressor on one kind of device."""

    encode: Curve
    """Work of a call (see `Compressor.work`; elements for most) -> seconds on the device, residual update included."""
    host: Curve
    """The same on the host's cores."""
    decode: Curve
    """Entries received -> seconds; entries are pairs of index and value for sparse payloads, work units for others."""
    origin: Origin
    """Where the numbers come from."""
    segment_s: float = 0.0
    """Seconds that every further segment of the same call adds."""
    piece_s: float = 0.0
    """Seconds that every further piece of a segment adds (see `Compressor.pieces`)."""
    tensor_s: float = 0.0
    """Seconds that every further tensor of a segment adds that is no piece."""
    host_copies: bool = False
    """Whether copying to the host and back is in `host`."""


@dataclass(frozen=True)
class Overheads:
    """What the runtime itself costs a rank's training thread."""

    hook_s: float = 0.0
    """Seconds for one gradient that arrives."""
    add_s: float = 0.0
    """Seconds more for one that is to be compressed."""
    fill_s_per_byte: float = 0.0
    """Seconds per byte of copying a dense gradient into its message."""
    lane_s: float = 0.0
    """Seconds of issuing a message."""
    result_s: float = 0.0
    """Seconds per tensor of checking what was received and writing the average."""
    result_s_per_byte: float = 0.0
    """The same per byte of the whole gradient."""
    finish_s: float = 0.0
    """Seconds once a step."""
    offload_s: float = 0.0
    """Seconds of handing a segment to the thread that compresses on the host, which has to wake up."""
    sum_s: float = 0.0
    """Seconds, instead of `result_s`, per tensor of which pairs of index and value were gathered."""
    decode_s: float = 0.0
    """Seconds once a step in which anything is decoded."""


@dataclass(frozen=True)
class TimingModel:
    """`world_size` ranks of a cluster, as times.

    Raises ConfigError when asked for a compressor without times.
    """

    name: str
    """Of the cluster, or what else was measured."""
    world_size: int
    """Number of ranks, one per device."""
    codecs: Mapping[str, CompressorTimes]
    """Compressor spec -> its times on these devices."""
    exchange: Mapping[str, Curve]
    """Primitive (or whole collective) -> seconds over the bytes one rank contributes, when nothing else runs."""
    origin: Origin
    """Where the numbers come from; those of compressors have an origin each."""
    contention: Contention = field(default_factory=Contention)
    """How exchanges, and computing under an exchange, slow one another down."""
    burst_s: float = 0.0
    """Seconds on the wire that an exchange saves on a line that rested as long (token buckets of emulated lines)."""
    overheads: Overheads = Overheads()
    """What the runtime's own code costs."""
    style: Style = "runtime"
    """How a plan is executed. "runtime": as here, one compressor call for all device segments of a lane, decoding when
    everything has arrived. "reference": as published codes do and F(plan) assumes, one call for each segment, decoding
    where the plan says."""
    host_shares: bool = False
    """Whether offloaded work takes its time from the training thread's cores, as on a machine without a GPU."""
    pcie_s_per_byte: float = 0.0
    """Seconds per byte of copying between device and host, one way."""

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
        """Return the model as JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TimingModel:
        """Return the model that `to_json` wrote, of this version or an earlier one."""
        raw = up_to_date("TimingModel", json.loads(text))
        raw["codecs"] = {name: _codec(value) for name, value in raw["codecs"].items()}
        raw["exchange"] = {name: Curve.of(value) for name, value in raw["exchange"].items()}
        # Earlier versions kept the fields of Contention among those of the model.
        own = {one.name: raw.pop(one.name) for one in fields(Contention) if one.name in raw}
        raw["contention"] = Contention.of(raw.get("contention", own))
        raw["overheads"] = Overheads(**raw["overheads"])
        raw["origin"] = Origin(**raw["origin"])
        return cls(**raw)

    @property
    def digest(self) -> str:
        """First 8 hex digits of the SHA-256 of the JSON text: which calibration a simulated number rests on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:8]


def _codec(raw: Mapping[str, Any]) -> CompressorTimes:
    curves = {key: Curve.of(raw[key]) for key in ("encode", "host", "decode")}
    return CompressorTimes(**{**raw, **curves, "origin": Origin(**raw["origin"])})


def _stretched(curve: Curve, units: float) -> Curve:
    """Return the curve over sizes of which each stands for `units` units of the given one."""
    return Curve(tuple(size / units for size in curve.sizes), curve.seconds, curve.unbounded)
