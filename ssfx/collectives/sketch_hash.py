"""The count sketch: two hash families over element numbers, insertion and estimation.

A sketch is float32 [rows, cols]. Row q adds every element, with a random sign, to one of its buckets; what a bucket
holds, times the sign, estimates each of its elements. Sketches of one family add up.

Source: Charikar et al. 2002; D-34.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.core.lazy import torch
from ssfx.wire.random_keys import key, splitmix64

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIME = 2**31 - 1
"""Products of two numbers below it fit in int64; element numbers are smaller too."""


@dataclass(frozen=True, slots=True)
class HashRow:
    """One row's functions: bucket ((a i + b) mod PRIME) mod cols, sign from the cubic polynomial `q`, highest first.

    Buckets are pairwise independent, signs 4-wise.
    """

    a: int
    b: int
    q: tuple[int, int, int, int]

    def buckets(self, at: torch.Tensor, cols: int) -> torch.Tensor:
        """Return the bucket (int64) of each element number in `at` (int64)."""
        return (at * self.a + self.b) % PRIME % cols

    def signs(self, at: torch.Tensor) -> torch.Tensor:
        """Return 1 or -1 (float32) for each element number in `at` (int64)."""
        value = torch.full_like(at, self.q[0])
        for coefficient in self.q[1:]:
            value = (value * at + coefficient) % PRIME
        return (1 - 2 * (value % 2)).to(torch.float32)


def draw(rows: int, seed: int, buffer: int, step: int) -> tuple[HashRow, ...]:
    """Return the hash functions of one exchange: the same on every rank, others for every buffer and step."""
    base = key(seed, buffer, step)

    def number(row: int, place: int, low: int) -> int:
        return low + splitmix64(base ^ (8 * row + place)) % (PRIME - low)

    return tuple(
        HashRow(number(r, 0, 1), number(r, 1, 0), (number(r, 2, 0), number(r, 3, 0), number(r, 4, 0), number(r, 5, 0)))
        for r in range(rows)
    )


def insert(sketch: torch.Tensor, hashes: Sequence[HashRow], at: torch.Tensor, values: torch.Tensor) -> None:
    """Add elements number `at` (int64) with their values (float32) to `sketch`."""
    for row, functions in zip(sketch, hashes, strict=True):
        row.index_add_(0, functions.buckets(at, len(row)), functions.signs(at) * values)


def estimate(sketch: torch.Tensor, hashes: Sequence[HashRow], at: torch.Tensor) -> torch.Tensor:
    """Return the median over rows of what each says about elements `at`; the mean of the middle two if rows are even.

    The lower of two middle values, which `torch.median` takes, would be biased.
    """
    said = torch.stack([
        functions.signs(at) * row[functions.buckets(at, len(row))]
        for row, functions in zip(sketch, hashes, strict=True)
    ])  # fmt: skip
    if len(said) == 1:
        return said[0]
    said, middle = said.sort(0).values, len(said) // 2
    return said[middle] if len(said) % 2 else (said[middle - 1] + said[middle]) / 2
