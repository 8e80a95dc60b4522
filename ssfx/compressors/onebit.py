"""1-bit SGD: a bit per element, decoded by the mean of the elements that have the same bit."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Context, Layout, Payload, compressors
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import quantizers
from ssfx.compressors.quantizer import Quantizer, code_bytes
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

SCOPES = ("segment", "column")
SHORTEST = 64
"""Elements of a column from which its two means take no more than its bits."""


@dataclass(frozen=True)
class OneBitOptions(Bounded):
    """`scope` of the two means: the whole segment, or each column of a matrix (first dimension by the rest).

    With scope=column, a tensor whose columns have fewer than 64 elements, as every vector, has one pair of means.
    """

    scope: Annotated[str, SCOPES] = "segment"


@compressors.register(OneBitOptions())
class OneBit(Quantizer):
    """Classes a < 0 and a >= 0 with their means; never worse than EF-SignSGD (D-25).

    Means per column, as in the paper, never leave more behind than means per segment: their classes are finer.
    """

    name = "onebit"
    summary = "one bit per element, decoded by class means, made for error feedback"
    source = "Seide et al. 2014; D-25"
    options: OneBitOptions

    def layout(self, numel: int, density: float) -> Layout:
        """Two means, negative class first, and ceil(n / 8) bytes; planners know no shape: columns of a square."""
        columns = 1
        if self.options.scope == "column":
            rows = math.isqrt(numel)
            columns = -(-numel // rows) if rows >= SHORTEST else 1
        return Layout(scales=2 * columns if numel else 0, code_bytes=code_bytes(numel, 1))

    def layout_of(self, shapes: Sequence[tuple[int, ...]], density: float) -> Layout:
        """Exact: two means for every column of every tensor."""
        if self.options.scope == "segment":
            return super().layout_of(shapes, density)
        numel = sum(math.prod(shape) for shape in shapes)
        return Layout(scales=sum(2 * m[2] for m in split(tuple(shapes))), code_bytes=code_bytes(numel, 1))

    def compress_batch(self, batch: Batch) -> None:
        """Write bits and class means of every segment."""
        if self.options.scope == "column":
            quantizers(batch.vector.device).column_means(batch, split)
        else:
            quantizers(batch.vector.device).two_means(batch)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * the mean of each element's class."""
        means = payload.scales * scale
        if self.options.scope == "column":
            quantizers(out.device).add_columns(payload, means, split(ctx.shapes), out)
        else:
            quantizers(out.device).add_signs(payload, means[:1], means[1:], 0, out)


@functools.lru_cache(maxsize=1 << 14)
def split(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int, int, int], ...]:
    """Return start, rows, columns and first scale of every tensor of a segment that has elements; no torch.

    The scales of a tensor are the low means of its columns, then the high ones.
    """
    matrices, start, scale = [], 0, 0
    for shape in shapes:
        numel = math.prod(shape)
        if not numel:
            continue
        rows = shape[0] if len(shape) > 1 and shape[0] >= SHORTEST else numel
        matrices.append((start, rows, numel // rows, scale))
        start += numel
        scale += 2 * (numel // rows)
    return tuple(matrices)
