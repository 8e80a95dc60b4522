"""Norms of blocks, the elements of chosen ones, the largest elements of every chunk: compiled, a call for a batch.

Chunks take one pass over the data, a chunk in the first-level cache at a time. The smallest of the maxima of `keep`
pieces of a chunk is reached by at least `keep` elements and by few more, so that an exact choice among what reaches it
costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.vector import WIDTH, append_reached
from ssfx.compressors.kernels.narrow import round_values
from ssfx.compressors.kernels.reference.blocks import HI, KEPT, LO, NUMBERS, SCORES, SLOT, VALUES, Chunks
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch


def block_norms(vector: torch.Tensor, rows: NDArray[np.int64], block: int, norms: torch.Tensor) -> None:
    """As `ssfx.compressors.kernels.reference.blocks.block_norms`."""
    _norms(vector.numpy(), rows, block, norms.numpy())


def take_blocks(
    vector: torch.Tensor,
    rows: NDArray[np.int64],
    block: int,
    chosen: torch.Tensor,
    scores: torch.Tensor,
    values: torch.Tensor,
    numbers: torch.Tensor,
) -> None:
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


_MAGNITUDE = np.int32(0x7FFFFFFF)


def largest_of_chunks(batch: Batch, cuts: Sequence[Chunks]) -> None:
    """As `ssfx.compressors.kernels.reference.blocks.largest_of_chunks`."""
    batch.accumulate()
    payload, vector = batch.payload, batch.vector.numpy()
    exact = payload.values.dtype == torch.float32
    values = payload.values if exact else torch.empty(payload.values.shape, dtype=torch.float32)
    starts = [(part.lo, part.hi, part.starts.indices) for part in batch.parts]
    table = batch.once("cuts", lambda: np.array([(*at, *cut) for at, cut in zip(starts, cuts, strict=True)], np.int64))
    found, found_keys = batch.once("found", lambda: np.empty((2, max(cut.size for cut in cuts) + WIDTH), np.int32))
    choose(table, vector, vector.view(np.int32), batch.base, payload.indices.numpy(), values.numpy(), found, found_keys)
    round_values(batch, values)


@compiled()
def lower_bound(keys, keep):  # type: ignore[no-untyped-def]
    """Return a key that at least `keep` elements reach; `keep` at most their number."""
    bound = _MAGNITUDE
    for piece in range(keep):
        part = keys[len(keys) * piece // keep : len(keys) * (piece + 1) // keep]
        largest = np.int32(0)
        for i in range(len(part)):
            largest = max(largest, np.int32(part[i] & _MAGNITUDE))
        bound = min(bound, largest)
    return bound


@compiled()
def kth_key(found_keys, keep):  # type: ignore[no-untyped-def]
    """Return the keep-th largest of a few keys, and how many equal to it are among the keep largest."""
    largest = _MAGNITUDE
    equal = 0
    for i in range(len(found_keys)):
        equal += int(found_keys[i] == largest)
    while equal < keep:
        keep -= equal
        below = np.int32(-1)
        for i in range(len(found_keys)):
            key = found_keys[i]
            below = max(below, key if key < largest else np.int32(-1))
        largest = below
        equal = 0
        for i in range(len(found_keys)):
            equal += int(found_keys[i] == largest)
    return largest, keep


@compiled()
def choose(table, vector, keys, base, indices, values, found, found_keys):  # type: ignore[no-untyped-def]
    """Fill the slots of every segment; rows of the table are (start, end, first slot, *Chunks)."""
    for s in range(len(table)):
        lo, hi, slot, _, size, keep, keep_rest = table[s]
        for start in range(lo, hi, size):
            end = min(start + size, hi)
            wanted = keep if end - start == size else keep_rest
            least = lower_bound(keys[start:end], wanted)
            reached = 0
            whole = start + (end - start) // WIDTH * WIDTH
            for i in range(start, whole, WIDTH):
                reached = append_reached(keys, i, least, found, reached)
            for i in range(whole, end):
                if np.int32(keys[i] & _MAGNITUDE) >= least:
                    found[reached] = i
                    reached += 1
            if reached == wanted:
                for j in range(reached):
                    indices[slot + j] = base + found[j]
                    values[slot + j] = vector[found[j]]
                slot += reached
                continue
            for j in range(reached):
                found_keys[j] = keys[found[j]] & _MAGNITUDE
            key, ties = kth_key(found_keys[:reached], wanted)
            for j in range(reached):
                tie = found_keys[j] == key
                if found_keys[j] > key or (tie and ties > 0):
                    indices[slot] = base + found[j]
                    values[slot] = vector[found[j]]
                    slot += 1
                    ties -= int(tie)
