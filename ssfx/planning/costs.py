"""The Costs: seconds as functions of size, for one compressor on one device and one network of a given world size."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import ConfigError
from ssfx.core.lazy import numpy as np
from ssfx.core.origin import Origin

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        if any(b <= a for a, b in zip(self.sizes, self.sizes[1:], strict=False)):
            raise ValueError("curve sizes must increase")
        if any(s < 0 for s in self.seconds):
            raise ValueError("curve seconds must not be negative")

    @classmethod
    def affine(cls, base_s: float, per_unit_s: float) -> Curve:
        """Return base_s + per_unit_s * size, valid everywhere (a model, not a measurement)."""
        far = 2.0**30  # a distant second knot, so that the slope survives the rounding of base + slope
        return cls((0.0, far), (base_s, base_s + per_unit_s * far), unbounded=True)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Curve:
        """Return the curve that JSON holds as {sizes, seconds, unbounded}."""
        return cls(tuple(raw["sizes"]), tuple(raw["seconds"]), bool(raw.get("unbounded", False)))

    def scaled(self, factor: float) -> Curve:
        """Return the curve of `factor` times the seconds."""
        return Curve(self.sizes, tuple(factor * value for value in self.seconds), self.unbounded)

    def plus(self, per_unit_s: float) -> Curve:
        """Return the curve with so many seconds more for every unit of size."""
        more = (value + per_unit_s * size for size, value in zip(self.sizes, self.seconds, strict=True))
        return Curve(self.sizes, tuple(more), self.unbounded)

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
        xs, ys = np.asarray(self.sizes), np.asarray(self.seconds)
        if len(xs) == 1:
            out = np.full(sizes.shape, ys[0])
        else:
            hi = np.clip(np.searchsorted(xs, sizes, side="right"), 1, len(xs) - 1)
            slope = (ys[hi] - ys[hi - 1]) / (xs[hi] - xs[hi - 1])
            out = np.maximum(0.0, ys[hi - 1] + slope * (sizes - xs[hi - 1]))
            out = np.where(sizes <= xs[0], ys[0], out)
        return np.where(sizes <= 0, 0.0, out)


@dataclass(frozen=True)
class Costs:
    """What planning needs to know about time, for `world_size` ranks.

    encode: elements -> seconds of one compressor call on the device. host: elements -> seconds of copying out,
    compressing on the host and copying the payload back. decode: elements of a segment -> seconds of decoding and
    adding all `world_size` payloads. exchange: collective name -> curve over the bytes one rank contributes.
    """

    world_size: int
    encode: Curve
    host: Curve
    decode: Curve
    exchange: Mapping[str, Curve]
    origin: Origin

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
        raw = json.loads(text)
        exchange = {name: Curve.of(value) for name, value in raw["exchange"].items()}
        return cls(
            raw["world_size"], Curve.of(raw["encode"]), Curve.of(raw["host"]), Curve.of(raw["decode"]),
            exchange, Origin(**raw["origin"]),
        )  # fmt: skip


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
