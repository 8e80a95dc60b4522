"""The TimingModel: what a simulation knows about time besides the plan and the profile, and where it knows it from.

It describes `world_size` equal ranks on one cluster: what compressors take on its devices, what its collectives
take, and how both slow one another down. The same object prices plans (`planning_costs`) and executes them in virtual
time (`ssfx.simulator`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from ssfx.compressors import build
from ssfx.core.files import loads
from ssfx.core.origin import Origin
from ssfx.core.spec import name_of
from ssfx.core.typed import typed
from ssfx.perf_model.compressor_times import as_priced, why_uncounted
from ssfx.planning.costs import CompressorTimes, Costs, Curve, Overheads, Style, times_of

USUAL_BYTES = 2**20
"""Of an exchange whose share of computing power stands for all sizes."""


@dataclass(frozen=True)
class Contention:
    """What a rank's exchanges and its computing take from one another while both go on.

    "Under compute" means: while every rank runs forward or backward passes. Sizes of curves are the bytes that one rank
    contributes. Raises ValueError when a share is not in [0, 1], or when the seconds of an exchange under compute are
    known without the computing power it takes, or the other way round.
    """

    occupancy: Mapping[str, float] = field(default_factory=dict)
    """Primitive -> share of the rank's computing power, in [0, 1], that an exchange takes while it runs. It counts only
    where nothing was measured under compute."""
    under_compute_s: Mapping[str, Curve] = field(default_factory=dict)
    """Primitive -> seconds of the exchange under compute, where that was measured."""
    under_compute_cpu_s: Mapping[str, Curve] = field(default_factory=dict)
    """Primitive -> what that exchange takes from computing, in seconds of all computing power that a rank has."""
    in_flight: int = 1
    """How many exchanges are worked on at a time. They start in order and share the wire."""

    def __post_init__(self) -> None:
        if self.under_compute_s.keys() != self.under_compute_cpu_s.keys():
            raise ValueError("an exchange under compute needs both its time and the computing power it takes")
        for primitive, share in self.occupancy.items():
            if not 0 <= share <= 1:
                raise ValueError(f"occupancy of {primitive} must be in [0, 1], got {share}")

    def shares(self) -> dict[str, float]:
        """Return by primitive the share of computing power that an exchange takes; as measured with `USUAL_BYTES`."""
        found = dict(self.occupancy)
        for name, curve in self.under_compute_s.items():
            seconds = curve(USUAL_BYTES)
            found[name] = min(1.0, self.under_compute_cpu_s[name](USUAL_BYTES) / seconds) if seconds else 0.0
        return found


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
    overheads: Overheads = Overheads()  # noqa: RUF009  frozen
    """What the runtime's own code costs."""
    style: Style = "batched"
    """How a plan is executed. "batched": as here, one compressor call for all device segments of a lane, decoding when
    everything has arrived. "per_call": as published codes do, one call for each segment, decoding
    where the plan says."""
    host_shares: bool = False
    """Whether offloaded work takes its time from the training thread's cores, as on a machine without a GPU."""
    pcie_s_per_byte: float = 0.0
    """Seconds per byte of copying between device and host, one way."""

    def __post_init__(self) -> None:
        if not (0 <= self.burst_s < inf and 0 <= self.pcie_s_per_byte < inf):
            raise ValueError("burst_s and pcie_s_per_byte must be finite and not negative")

    def codec(self, spec: str) -> CompressorTimes:
        """Return the times of a compressor; ConfigError names those that have some."""
        asked = spec if spec in self.codecs else as_priced(spec)
        return times_of(asked, self.codecs, self.name, why_uncounted(name_of(spec)))

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}  # what follows from the model and was asked for, so that equal questions have the very same answer

    def at_bandwidth(self, factor: float) -> TimingModel:
        """Return the model of a network with `factor` times the bandwidth and the same latency."""
        if factor not in self._made:
            self._made[factor] = self._at_bandwidth(factor)
        found: TimingModel = self._made[factor]
        return found

    def _at_bandwidth(self, factor: float) -> TimingModel:
        exchange = {name: curve.at_rate(factor) for name, curve in self.exchange.items()}
        under_compute_s = {name: curve.at_rate(factor) for name, curve in self.contention.under_compute_s.items()}
        return replace(self, exchange=exchange, contention=replace(self.contention, under_compute_s=under_compute_s))

    def planning_costs(self, compressor: str | None, density: float | None) -> Costs:
        """Return the costs by which schemes plan for one compressor (a spec) at one density.

        None: for dense messages, with the times of all compressors for schemes that choose among them.
        """
        key = compressor, density
        if key not in self._made:
            self._made[key] = self._planning_costs(compressor, density)
        found: Costs = self._made[key]
        return found

    def _planning_costs(self, compressor: str | None, density: float | None) -> Costs:
        own = {} if compressor is None else {compressor: self.codec(compressor)}  # refuses one without times
        zero = Curve.zero()
        every = Costs(
            self.world_size,
            zero,
            zero,
            zero,
            self.exchange,
            self.origin,
            self.style,
            {**self.codecs, **own},
            self.overheads,
            self.host_shares,
            self.pcie_s_per_byte,
            self.contention.shares(),
        )
        return costs_of(every, compressor, density)

    def to_json(self) -> str:
        """Return the model as JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TimingModel:
        """Return the model that `to_json` wrote."""
        return typed(cls, loads(text))

    @property
    def digest(self) -> str:
        """First 8 hex digits of the SHA-256 of the JSON text: which calibration a simulated number rests on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:8]


def costs_of(costs: Costs, compressor: str | None, density: float | None) -> Costs:
    """Return `costs` with the curves over elements of one compressor (a spec; None: dense) at one density.

    Costs without times by compressor have curves over elements already, and are returned as they are. ConfigError
    names the compressors with times when `compressor` has none.
    """
    if not costs.times:
        return costs
    if compressor is None:
        zero = Curve.zero()
        return replace(costs, encode=zero, host=zero, decode=zero)
    codec, one = costs.codec(compressor), build(compressor)
    kept = density or 1.0
    units = one.work([(2**10, 2**10)]) / 2**20  # work of an element
    copies = 1 if one.additive else costs.world_size
    indices = one.layout(2**20, kept).indices
    per_element = copies * (min(kept, indices / 2**20) if indices else units)
    host = _stretched(codec.host, units)
    if not codec.host_copies:  # out as it is, back as a payload
        host = host.plus(costs.pcie_s_per_byte * (4 + one.layout(2**20, kept).nbytes / 2**20))
    return replace(
        costs,
        encode=_stretched(codec.encode, units),
        host=host,
        decode=_stretched(codec.decode, per_element),
        origin=codec.origin,
        times={compressor: codec},
    )


def _stretched(curve: Curve, units: float) -> Curve:
    """Return the curve over sizes that each stand for `units` units of the given one."""
    return Curve(tuple(size / units for size in curve.sizes), curve.seconds, curve.unbounded)
