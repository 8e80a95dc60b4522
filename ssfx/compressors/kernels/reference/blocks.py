"""Norms of the blocks of all segments, and the elements of chosen blocks: the plain-torch path.

`rows` [S, 7] int64 describes each segment: its span (LO, HI) in the vector, where its scores begin (SCORES), how many
blocks are chosen (KEPT) and which slots of the choice are its own (SLOT), and where its values (VALUES) and block
numbers (NUMBERS) go. A segment's last block may be shorter; missing elements count as zero. A segment of which all
blocks are chosen has no values for what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.core.lazy import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    vector: torch.Tensor, rows: NDArray[np.int64], block: int, chosen: torch.Tensor, scores: torch.Tensor,
    values: torch.Tensor, numbers: torch.Tensor,
) -> None:  # fmt: skip
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
