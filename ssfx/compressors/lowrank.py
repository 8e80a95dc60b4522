"""What low-rank compressors share: which tensors of a segment are factored, where their factors lie, their bases.

A tensor is seen as a matrix, first dimension by the rest. Vectors, and matrices that factors would not make enough
smaller, travel as they are behind the factors, in the same payload. Source: D-26.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Compressor, Layout
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class LowRankOptions(Bounded):
    """`rank` of the factors, at most that of the matrix.

    A matrix is factored if its two factors together are smaller by more than `min_compression_rate` (2, as in PyTorch's
    hook); 0 factors every matrix, as the papers do.
    """

    rank: Annotated[int, "[1, 4096]"] = 4
    min_compression_rate: Annotated[float, 0] = 2.0


@dataclass(frozen=True, slots=True)
class Matrix:
    """Elements `span` of a segment as rows x cols, about P Q^T; `left` and `right` are the places of P and Q.

    A factor lies column by column: thin products are about twice as fast that way.
    """

    rows: int
    cols: int
    rank: int
    span: slice
    left: slice
    right: slice

    def of(self, segment: torch.Tensor) -> torch.Tensor:
        """Return the [rows, cols] view of a flat segment."""
        return segment[self.span].view(self.rows, self.cols)

    def p(self, factors: torch.Tensor) -> torch.Tensor:
        """Return the [rows, rank] view of a segment's left factors."""
        return factors[self.left].view(self.rank, self.rows).T

    def q(self, factors: torch.Tensor) -> torch.Tensor:
        """Return the [cols, rank] view of a segment's right factors."""
        return factors[self.right].view(self.rank, self.cols).T


@dataclass(frozen=True, slots=True)
class Split:
    """A segment's matrices and the spans of its other tensors; elements of all P, all Q and the others."""

    matrices: tuple[Matrix, ...]
    plain: tuple[slice, ...]
    left: int
    right: int
    rest: int


@functools.lru_cache(maxsize=1 << 14)
def split(shapes: tuple[tuple[int, ...], ...], options: LowRankOptions) -> Split:
    """Return how a segment of tensors of these shapes is divided; a pure function, no torch."""
    matrices, plain = [], []
    start = left = right = rest = 0
    for shape in shapes:
        numel = math.prod(shape)
        span = slice(start, start + numel)
        start += numel
        is_matrix = len(shape) > 1 and numel > 0
        rows, cols = (shape[0], numel // shape[0]) if is_matrix else (numel, 1)
        r = min(options.rank, rows, cols)
        if is_matrix and options.min_compression_rate * r * (rows + cols) < numel:
            places = slice(left, left + r * rows), slice(right, right + r * cols)
            matrices.append(Matrix(rows, cols, r, span, *places))
            left, right = places[0].stop, places[1].stop
        else:
            plain.append(span)
            rest += numel
    return Split(tuple(matrices), tuple(plain), left, right, rest)


class LowRank(Compressor):
    """Linear projections of matrices: ranks' payloads add up. Density has no effect, the rank decides."""

    additive = True
    options: LowRankOptions

    def split(self, shapes: Shapes) -> Split:
        """Return how a segment of tensors of these shapes is divided."""
        return split(tuple(shapes), self.options)

    def layout(self, numel: int, density: float) -> Layout:
        """As `layout_of` for one square matrix of about `numel` elements; planners know no shape."""
        rows = max(1, math.isqrt(numel))
        square = self.split([(rows, -(-numel // rows))])
        return self._layout(square if square.matrices else self.split([(numel,)]))

    def layout_of(self, shapes: Shapes, density: float) -> Layout:
        """Exact: factors of the matrices, then the values of the other tensors."""
        return self._layout(self.split(shapes))

    def work(self, shapes: Shapes) -> float:
        """Return elements times rank over the factored matrices, plus the elements of the other tensors."""
        parts = self.split(shapes)
        return float(sum(m.rows * m.cols * m.rank for m in parts.matrices) + parts.rest)

    def pieces(self, shapes: Shapes) -> int:
        """Return the number of factored matrices, which are treated one by one."""
        return max(1, len(self.split(shapes).matrices))

    @abstractmethod
    def _layout(self, parts: Split) -> Layout: ...


def write_plain(parts: Split, a: torch.Tensor, values: torch.Tensor) -> None:
    """The last `parts.rest` values are the elements of `a` that no matrix covers."""
    start = values.numel() - parts.rest
    for span in parts.plain:
        end = start + span.stop - span.start
        values[start:end].copy_(a[span])
        start = end


def add_plain(parts: Split, values: torch.Tensor, out: torch.Tensor, scale: float) -> None:
    """Add scale * the last `parts.rest` values to the elements of `out` that no matrix covers."""
    start = values.numel() - parts.rest
    for span in parts.plain:
        end = start + span.stop - span.start
        out[span].add_(values[start:end], alpha=scale)
        start = end


def basis(factor: torch.Tensor) -> torch.Tensor:
    """Return orthonormal columns that span those of `factor` (float32, no fewer rows than columns).

    Householder QR: also where columns are zero or dependent, so that one step without gradients leaves no dead factor.
    Ranks that hold the same bits get the same bits.
    """
    columns: torch.Tensor = torch.linalg.qr(factor).Q
    return columns


def revived(factor: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return `factor` with its all-zero columns replaced by those of `fresh`; does not wait for the device."""
    return torch.where(factor.any(0), factor, fresh)


def normal(key: int, numel: int, device: torch.device) -> torch.Tensor:
    """Return `numel` standard normal float32 numbers of a 64-bit key, the same on every rank and device."""
    return torch.randn(numel, dtype=torch.float32, generator=torch.Generator().manual_seed(key)).to(device)


@functools.lru_cache(maxsize=1 << 12)
def cached_normal(key: int, numel: int, device: torch.device) -> torch.Tensor:
    """As `normal`, drawn once per process: every step may need it for a column that died. Not to be changed."""
    return normal(key, numel, device)
