"""Norms of blocks, the elements of chosen ones, and the largest elements of every chunk: the plain-torch path.

`rows` [S, 7] int64 describes each segment: its span (LO, HI) in the vector, where its scores begin (SCORES), how many
blocks are chosen (KEPT) and which slots of the choice are its own (SLOT), and where its values (VALUES) and block
numbers (NUMBERS) go. A segment's last block may be shorter; missing elements count as zero. A segment of which all
blocks are chosen has no values for what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ssfx.core.lazy import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch


LO, HI, SCORES, KEPT, SLOT, VALUES, NUMBERS = range(7)


def block_norms(vector: torch.Tensor, rows: NDArray[np.int64], block: int, norms: torch.Tensor) -> None:
    """Every block's Euclidean norm is in `norms`; squares are added in float64, so that none of them overflows."""
    for lo, hi, first, *_ in rows.tolist():
        whole = (hi - lo) // block
        rest = vector[lo + whole * block : hi]
        blocks = vector[lo : hi - len(rest)].view(whole, block)
        norms[first : first + whole] = torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)
        if len(rest):
            norms[first + whole] = torch.linalg.vector_norm(rest, dtype=torch.float64)


def take_blocks(
    vector: torch.Tensor,
    rows: NDArray[np.int64],
    block: int,
    chosen: torch.Tensor,
    scores: torch.Tensor,
    values: torch.Tensor,
    numbers: torch.Tensor,
) -> None:
    """Numbers and elements of the blocks whose scores lie at positions `chosen` are in `numbers` and `values`.

    Where the score of a chosen block is not finite, its values are NaN.
    """
    for lo, hi, first, kept, slot, at, numbers_at in rows.tolist():
        mine = chosen[slot : slot + kept] - first
        numbers[numbers_at : numbers_at + kept] = mine
        places = (mine.long()[:, None] * block + torch.arange(block, device=vector.device)).view(-1)[: hi - lo]
        taken = torch.where(places < hi - lo, vector[(lo + places).clamp(max=max(lo, hi - 1))], 0)
        not_finite = (scores[slot : slot + kept] * 0).repeat_interleave(block)[: hi - lo]  # 0 or NaN
        values[at : at + len(taken)] = taken + not_finite


class Chunks(NamedTuple):
    """`number` chunks of `size` elements that keep `keep` each, and a shorter one at the end that keeps `keep_rest`."""

    number: int
    size: int
    keep: int
    keep_rest: int

    @property
    def kept(self) -> int:
        """Elements kept of all chunks."""
        return self.number * self.keep + self.keep_rest


def largest_of_chunks(batch: Batch, cuts: Sequence[Chunks]) -> None:
    """Accumulate; every segment's slots hold the largest magnitudes of each chunk of its cut, in ascending order.

    Ties go to the lower position, NaN counts as larger than anything.
    """
    batch.accumulate()
    for part, cut in zip(batch.parts, cuts, strict=True):
        a, payload = batch.vector[part.lo : part.hi], batch.share(part)
        bits = a.view(torch.int32) & 0x7FFFFFFF
        whole = cut.number * cut.size
        order = bits[:whole].view(cut.number, cut.size).argsort(dim=1, descending=True, stable=True)
        first = torch.arange(0, whole, cut.size, device=a.device)[:, None]
        rest = bits[whole:].argsort(descending=True, stable=True)[: cut.keep_rest] + whole
        chosen = torch.cat([(order[:, : cut.keep] + first).view(-1), rest]).sort().values
        payload.indices.copy_(chosen + part.lo + batch.base)
        payload.values.copy_(a[chosen])
