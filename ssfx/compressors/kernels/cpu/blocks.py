"""Norms of the blocks of all segments, and the elements of chosen blocks: compiled, one call for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.reference.blocks import HI, KEPT, LO, NUMBERS, SCORES, SLOT, VALUES

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


def block_norms(vector: torch.Tensor, rows: NDArray[np.int64], block: int, norms: torch.Tensor) -> None:
    """As `ssfx.compressors.kernels.reference.blocks.block_norms`."""
    _norms(vector.numpy(), rows, block, norms.numpy())


def take_blocks(
    vector: torch.Tensor, rows: NDArray[np.int64], block: int, chosen: torch.Tensor, scores: torch.Tensor,
    values: torch.Tensor, numbers: torch.Tensor,
) -> None:  # fmt: skip
    """As `ssfx.compressors.kernels.reference.blocks.take_blocks`."""
    _take(vector.numpy(), rows, block, chosen.numpy(), scores.numpy(), values.numpy(), numbers.numpy())


@compiled(fastmath={"reassoc", "nsz"})
def _square_sum(a):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(a)):
        x = np.float64(a[i])
        total += x * x
    return total


@compiled()
def _norms(vector, rows, block, norms):  # type: ignore[no-untyped-def]
    for row in rows:
        position = row[SCORES]
        for start in range(row[LO], row[HI], block):
            norms[position] = np.sqrt(_square_sum(vector[start : min(start + block, row[HI])]))
            position += 1


@compiled()
def _take(vector, rows, block, chosen, scores, values, numbers):  # type: ignore[no-untyped-def]
    for row in rows:
        at = row[VALUES]
        for j in range(row[KEPT]):
            number = chosen[row[SLOT] + j] - row[SCORES]
            numbers[row[NUMBERS] + j] = number
            not_finite = scores[row[SLOT] + j] * np.float32(0)  # 0 or NaN
            start = row[LO] + number * block
            taken = vector[start : min(start + block, row[HI])]
            target = values[at : at + len(taken)]
            for i in range(len(taken)):
                target[i] = taken[i] + not_finite
            at += len(taken)
            if len(taken) < block and row[KEPT] * block < row[HI] - row[LO]:
                values[at : at + block - len(taken)] = not_finite
