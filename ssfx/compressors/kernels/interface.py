"""What all kernels share: how memories accumulate, what is selected, and the statistics that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
