"""The Costs: seconds as functions of size, for one compressor on one device and one network of a given world size.

Curves through measured sizes are straight lines in logarithms between them, with an end to what they are taken for.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import ceil, exp, inf, log, log2
from typing import TYPE_CHECKING, Any, Literal

from ssfx.core.errors import ConfigError, some_of
from ssfx.core.files import loads
from ssfx.core.lazy import numpy as np
from ssfx.core.origin import Origin
from ssfx.core.spec import Spec
from ssfx.core.typed import typed

if TYPE_CHECKING:
    from numpy.typing import NDArray


Style = Literal["batched", "per_call"]
"""How a plan is executed: one compressor call for all device segments of a message, or one for each segment."""


@dataclass(frozen=True)
class Curve:
    """Seconds against size, piecewise linear: flat below the first knot, extended linearly beyond the last one.

    A size of 0 costs nothing. `covers` tells whether a size lies inside the measured range, so that a caller can say
    "extrapolated" instead of silently using the extension.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    unbounded: bool = False

    def __post_init__(self) -> None:
        if not self.sizes or len(self.sizes) != len(self.seconds):
            raise ValueError("a curve needs as many seconds as sizes, and at least one")
        ordered = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not ordered or not 0 <= self.sizes[0] <= self.sizes[-1] < inf:
            raise ValueError("curve sizes must be finite, not negative, and increase")
        if not all(s >= 0 for s in self.seconds):
            raise ValueError("curve seconds must not be negative")

    @classmethod
    def affine(cls, base_s: float, per_unit_s: float) -> Curve:
        """Return base_s + per_unit_s * size, valid everywhere (a model, not a measurement)."""
        far = 2.0**30  # a distant second knot, so that the slope survives the rounding of base + slope
        return cls((0.0, far), (base_s, base_s + per_unit_s * far), unbounded=True)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Curve:
        """Return the curve that JSON holds as {sizes, seconds, unbounded}; nothing measured takes for ever."""
        return typed(cls, raw)

    def scaled(self, factor: float) -> Curve:
        """Return the curve of `factor` times the seconds."""
        return replace(self, seconds=tuple(factor * value for value in self.seconds))

    def at_rate(self, factor: float) -> Curve:
        """Return the curve at `factor` times the rate: what a size takes beyond the least seconds shrinks by it."""
        least_s = min(self.seconds)
        return replace(self, seconds=tuple(least_s + (s - least_s) / factor for s in self.seconds))

    def plus(self, per_unit_s: float) -> Curve:
        """Return the curve with so many seconds more for every unit of size."""
        more = (value + per_unit_s * size for size, value in zip(self.sizes, self.seconds, strict=True))
        return Curve(self.sizes, tuple(more), self.unbounded)

    def at_least(self, least_s: float) -> Curve:
        """Return a line's curve, flat at `least_s` where it would be below; its seconds must not shrink with size."""
        (_, far), (base_s, far_s) = self.sizes, self.seconds
        if least_s <= base_s:
            return self
        reached = far * (least_s - base_s) / (far_s - base_s) if far_s > least_s else far
        if reached >= far:
            return replace(self, seconds=(least_s, least_s))
        return replace(self, sizes=(0.0, reached, far), seconds=(least_s, least_s, far_s))

    def later(self, more_s: float) -> Curve:
        """Return the curve with so many seconds more for every size."""
        return replace(self, seconds=tuple(value + more_s for value in self.seconds))

    @classmethod
    def zero(cls) -> Curve:
        """Return the curve that costs nothing."""
        return cls.affine(0.0, 0.0)

    def covers(self, size: float) -> bool:
        """True when `size` lies within the knots (or the curve is a model without a range)."""
        return self.unbounded or size == 0 or self.sizes[0] <= size <= self.sizes[-1]

    def __call__(self, size: float) -> float:
        """Return the seconds for `size`."""
        if size <= 0:
            return 0.0
        xs, ys = self.sizes, self.seconds
        if size <= xs[0] or len(xs) == 1:
            return ys[0]
        hi = min(bisect_right(xs, size), len(xs) - 1)
        lo = hi - 1
        slope = (ys[hi] - ys[lo]) / (xs[hi] - xs[lo])
        return max(0.0, ys[lo] + slope * (size - xs[lo]))

    def many(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds for an array of sizes; equals calling the curve on each."""
        if len(self.sizes) == 2:  # a line: most curves of clusters that are not here
            (x0, x1), (y0, y1) = self.sizes, self.seconds
            out = np.maximum(0.0, y0 + (y1 - y0) / (x1 - x0) * (sizes - x0))
            return np.where(sizes <= 0, 0.0, np.where(sizes <= x0, y0, out) if x0 > 0 else out)
        xs, ys = np.asarray(self.sizes), np.asarray(self.seconds)
        if len(xs) == 1:
            out = np.full(sizes.shape, ys[0])
        else:
            hi = np.clip(np.searchsorted(xs, sizes, side="right"), 1, len(xs) - 1)
            slope = (ys[hi] - ys[hi - 1]) / (xs[hi] - xs[hi - 1])
            out = np.maximum(0.0, ys[hi - 1] + slope * (sizes - xs[hi - 1]))
            out = np.where(sizes <= xs[0], ys[0], out)
        return np.where(sizes <= 0, 0.0, out)


def _check_seconds(holder: object, names: Sequence[str]) -> None:
    for name in names:
        if not 0 <= getattr(holder, name) < inf:
            raise ValueError(f"{name} must be finite and not negative, got {getattr(holder, name)!r}")


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

    def __post_init__(self) -> None:
        _check_seconds(self, ("segment_s", "piece_s", "tensor_s"))


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

    def __post_init__(self) -> None:
        _check_seconds(self, tuple(self.__dataclass_fields__))


@dataclass(frozen=True)
class Costs:
    """What planning needs to know about time, for `world_size` ranks.

    encode: elements -> seconds of one compressor call on the device. host: elements -> seconds of copying out,
    compressing on the host and copying the payload back. decode: elements of a segment -> seconds of decoding and
    adding all `world_size` payloads. exchange: collective name -> curve over the bytes one rank contributes.

    Planners search with these curves; `pricing.timeline.evaluate` says what the plan that they found costs, and
    asks for what follows, which is that of the TimingModel that the costs were made from.
    style: how many compressor calls a message takes. times: by compressor spec, its times in its own units of work;
    where there are none, the curves above stand for them, by elements. overheads: what the runtime itself takes.
    host_shares: compression on the host takes its time from the cores that train. pcie_s_per_byte: copying between
    device and host, one way. occupancy: by primitive, the share of the rank's computing power that an exchange takes
    while it runs, in [0, 1]; only what weighs plans by contention looks at it.
    """

    world_size: int
    encode: Curve
    host: Curve
    decode: Curve
    exchange: Mapping[str, Curve]
    origin: Origin
    style: Style = "per_call"
    times: Mapping[str, CompressorTimes] = field(default_factory=dict)
    overheads: Overheads = Overheads()
    host_shares: bool = False
    pcie_s_per_byte: float = 0.0
    occupancy: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_seconds(self, ("pcie_s_per_byte",))

    def codec(self, spec: str) -> CompressorTimes:
        """Return the times of a compressor in its own units; the curves by elements where there are none."""
        if not self.times:
            return CompressorTimes(self.encode, self.host, self.decode, self.origin, host_copies=True)
        return times_of(spec, self.times, self.origin.note)

    def on_network(self, factor: float) -> Costs:
        """Return the costs on a network on which every exchange takes `factor` times as long."""
        return replace(self, exchange={name: curve.scaled(factor) for name, curve in self.exchange.items()})

    def shares_s(self, numel: Sequence[int]) -> list[float]:
        """Return what the compressor takes of the device for each tensor of one message, each a segment of its own.

        Per call every tensor takes a call. Batched, one call takes all of them: by elements, its start-up with the
        largest tensor (the latest of equal ones), and what a further segment takes with the others.
        """
        sizes = np.array(numel, dtype=float)
        if self.style == "per_call" or not any(numel):
            each: list[float] = self.encode.many(sizes).tolist()
            return each
        total, further_s = sum(numel), max((one.segment_s for one in self.times.values()), default=0.0)
        call_s = self.encode(total)
        start_s = min(call_s, self.encode.seconds[0])
        shares = (call_s - start_s) * sizes / total + np.where(sizes > 0, further_s, 0.0)
        shares[len(sizes) - 1 - sizes[::-1].argmax()] += start_s - further_s
        found: list[float] = shares.tolist()
        return found

    def exchange_s(self, collective: str, nbytes: float) -> float:
        """Return the seconds of one collective; ConfigError when it was never calibrated."""
        if self.world_size == 1 or nbytes == 0:
            return 0.0
        return self._curve(collective)(nbytes)

    def exchange_many_s(self, collective: str, nbytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of one collective for an array of byte counts."""
        if self.world_size == 1:
            return np.zeros(nbytes.shape)
        return self._curve(collective).many(nbytes)

    def _curve(self, collective: str) -> Curve:
        if collective not in self.exchange:
            have = ", ".join(sorted(self.exchange))
            raise ConfigError(f"no cost curve for collective {collective!r}; calibrated: {have}")
        return self.exchange[collective]

    def to_json(self) -> str:
        """Return the cost table as JSON text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Costs:
        """Return the cost table that `to_json` wrote."""
        return typed(cls, loads(text))


def times_of(spec: str, times: Mapping[str, CompressorTimes], where: str, why: str = "") -> CompressorTimes:
    """Return the times of a compressor; ConfigError names those that have some, and says `why` this one has none.

    Some options change the time of a unit of work, most do not: the times are of as many of them as have some.
    """
    if spec in times:  # planners ask for the same few thousands of times
        return times[spec]
    asked = Spec.parse(spec, "compressor")
    name = asked.name
    for count in range(len(asked.options), -1, -1):
        for some in combinations(asked.options.items(), count):
            if (alike := str(Spec(name, dict(some)))) in times:
                return times[alike]
    raise ConfigError(
        f"no times for compressor {name} on {where}; there are some for {some_of(sorted(times)) or 'none'}: measure "
        f"it with ssfx profile compressors, or give a compressor of your own a cost(){why and f'; {why}'}"
    )


def ring_exchange(world_size: int, alpha_s: float, beta_s_per_byte: float) -> dict[str, Curve]:
    """Return ring-formula curves for the basic collectives (SSFusion Eq. 3-4; D-43).

    `alpha_s` is the latency of one message, `beta_s_per_byte` the inverse bandwidth of one link direction. Sizes are
    the bytes that one rank contributes.
    """
    p = world_size
    share = (p - 1) / p
    rounds = (p - 1).bit_length()  # of a binomial tree, not pipelined
    return {
        "all_reduce": Curve.affine(2 * (p - 1) * alpha_s, 2 * share * beta_s_per_byte),
        "all_gather": Curve.affine((p - 1) * alpha_s, (p - 1) * beta_s_per_byte),
        # Variable sizes: the 8-byte lengths are gathered first.
        "all_gather_v": Curve.affine((p - 1) * (2 * alpha_s + 8 * beta_s_per_byte), (p - 1) * beta_s_per_byte),
        # The same bytes in two halves, as codes do that send indices and values apart.
        "all_gather_twice": Curve.affine(2 * (p - 1) * alpha_s, (p - 1) * beta_s_per_byte),
        "reduce_scatter": Curve.affine((p - 1) * alpha_s, share * beta_s_per_byte),
        "all_to_all": Curve.affine((p - 1) * alpha_s, share * beta_s_per_byte),
        "broadcast": Curve.affine(rounds * alpha_s, rounds * beta_s_per_byte),
        "send": Curve.affine(alpha_s, beta_s_per_byte),
    }


def placeholder_costs(world_size: int) -> Costs:
    """Return nominal costs for plans that do not consult them (10 Gbit/s, 20 us a message, compression for free)."""
    free = Curve.zero()
    origin = Origin("nominal", note="placeholder for schemes that need no costs")
    return Costs(world_size, free, free, free, ring_exchange(world_size, 20e-6, 0.8e-9), origin)


FREE = 2.0
"""Times that a size may be beyond the measured ones without a word; `Curve.covers` is false from there on."""
MOST = 8.0
"""Times beyond which nothing is said at all."""
_PER_OCTAVE = 4
"""Knots by which a straight line in logarithms is followed; the chords are 0.2 % above it at most."""


class MeasuredCurve(Curve):
    """A curve that `measured` made: the first and the last knot are twice beyond the sizes that were measured."""

    @property
    def range_text(self) -> str:
        """The sizes that were measured, "8 .. 33,554,432"."""
        return f"{max(1.0, FREE * self.sizes[0]):,.0f} .. {self.sizes[-1] / FREE:,.0f}"

    def refuses(self, size: float) -> bool:
        """Return whether `size` is more than 8 times below or above all that was measured."""
        beyond = MOST / FREE
        return size > 0 and not self.sizes[0] / beyond <= size <= self.sizes[-1] * beyond


def measured(sizes: Sequence[float], seconds: Sequence[float]) -> MeasuredCurve:
    """Return the curve through points with increasing sizes: log-log between, flat below, proportional above.

    Times that fall with the size are kept. ValueError for fewer than two points, and for what is not positive.
    """
    if len(sizes) != len(seconds) or len(sizes) < 2:
        raise ValueError("a measured curve needs as many seconds as sizes, and at least two")
    if not all(size > 0 for size in sizes) or not all(second > 0 for second in seconds):
        raise ValueError("sizes and seconds must be positive")
    xs, ys = [sizes[0] / FREE], [seconds[0]]
    for x0, x1, y0, y1 in zip(sizes, sizes[1:], seconds, seconds[1:], strict=False):
        if not x0 < x1:
            raise ValueError("curve sizes must increase")
        parts = max(1, ceil(_PER_OCTAVE * log2(x1 / x0) - 1e-9))
        for part in range(parts):
            share = part / parts
            xs.append(x0 if part == 0 else x0 * exp(share * log(x1 / x0)))
            ys.append(y0 if part == 0 else y0 * exp(share * log(y1 / y0)))
    xs += [sizes[-1], FREE * sizes[-1]]
    ys += [seconds[-1], FREE * seconds[-1]]
    return MeasuredCurve(tuple(map(float, xs)), tuple(ys))
