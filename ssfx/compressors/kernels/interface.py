"""What all kernels share: how memories accumulate, what is selected, and the statistics that they return."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Literal, NamedTuple

from ssfx.wire.memory import COPY as COPY
from ssfx.wire.memory import DGC as DGC
from ssfx.wire.memory import READY as READY
from ssfx.wire.memory import RESIDUAL as RESIDUAL
from ssfx.wire.memory import Form as Form

if TYPE_CHECKING:
    import torch


class Bound(NamedTuple):
    """How many elements of one segment may be selected.

    Fewer than `least` above the threshold: exactly `wanted` are chosen instead. More than `most`: cut to the largest.
    """

    least: int
    wanted: int
    most: int


@dataclass(frozen=True)
class Rule:
    """What is selected from each segment.

    `zeros`: zeros may fill up an exact choice. `rotate`: where no magnitude reaches the threshold and not all are zero,
    `wanted` positions from an offset that moves with the step are sent. `tail`: samples that a sampled threshold should
    have above it; None if the choice is exact anyway and the sample only has to save work.
    """

    bounds: tuple[Bound, ...]
    zeros: bool = False
    rotate: bool = False
    tail: int | None = None
    sample_fraction: float = 0.0


@dataclass(frozen=True)
class Moments:
    """Sums over each segment, float64 [S]: a, a^2, |a|, the largest |a|, and the number of non-zeros."""

    total: torch.Tensor
    square: torch.Tensor
    absolute: torch.Tensor
    largest: torch.Tensor
    nonzero: torch.Tensor


@dataclass(frozen=True)
class Tail:
    """Of each segment's magnitudes that reach a threshold, float64 [S]: number, sum, sum of squares, the smallest."""

    count: torch.Tensor
    total: torch.Tensor
    square: torch.Tensor
    least: torch.Tensor


LARGEST_FP8 = 448.0
"""The largest finite number of e4m3."""
LARGEST_BUCKET = 4096
"""Elements of a bucket that a tile of a CUDA kernel holds."""
SMALLEST_SCALE = 2.0**-126
"""Of fp8: a normal float32, so that no block is divided by zero."""


@dataclass(frozen=True)
class Coding:
    """How a bucket of elements becomes a scale and codes of so many bits; the last bucket may be shorter.

    levels: signed levels between 0 and the scale, the bucket's Euclidean norm or its `largest` |a|; rounded at random,
    or to the `nearest`. 8 bits are a two's complement byte, fewer are offset by the highest level. fp8: e4m3 numbers
    times the scale. means: a bit, 1 where a >= 0, and two scales, the means of the others and of these.
    `bucket` 0: one for the whole segment. `rotation`: blocks of so many neighbours are turned by a Hadamard matrix
    before, and turned back after decoding; 0: none are. What is not finite makes the scales of its bucket NaN.
    """

    kind: Literal["levels", "fp8", "means"]
    bits: int
    bucket: int
    largest: bool = True
    nearest: bool = True
    rotation: int = 0

    @property
    def top(self) -> int:
        """The highest level."""
        return (1 << self.bits - 1) - 1

    @property
    def offset(self) -> int:
        """The code of level 0."""
        return 0 if self.bits == 8 else self.top

    @property
    def scales(self) -> int:
        """Scales of a bucket."""
        return 2 if self.kind == "means" else 1

    @property
    def width(self) -> int:
        """Elements of a row of a tile: those of a bucket, up to a power of two."""
        return 1 << (self.bucket - 1).bit_length()

    @property
    def fits(self) -> bool:
        """Whether a tile holds whole buckets and whole rotated blocks; a GPU takes plain torch for others."""
        return 0 < self.bucket <= LARGEST_BUCKET and (not self.rotation or self.width == self.bucket)

    def unit(self, scale: float) -> float:
        """Return by what a bucket's scale and a code are multiplied, to decode `scale` times the bucket."""
        return scale / self.top if self.kind == "levels" else scale

    def period(self) -> int:
        """Return after how many elements buckets and rotated blocks begin together; 0: only with a segment."""
        return lcm(self.bucket, self.rotation or 1)


class Rows(NamedTuple):
    """Payloads of one layout, one in each row of `data` [P, bytes] (uint8): scales in front, codes from a byte on."""

    data: torch.Tensor
    codes_at: int
