"""Triton: sums over the segments of a batch, one partial result per block and one program per segment to add them up.

Sums are float64 and always in the same order, so equal inputs give equal thresholds. Nothing is read back by the host.
Source: D-11, D-12, D-22, D-23, D-38.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ssfx.compressors.kernels.triton.memory import MAGNITUDE, accumulated, block_of, key_below, keys_of

SUM = tl.constexpr(0)
LARGEST = tl.constexpr(1)
SMALLEST = tl.constexpr(2)
"""What becomes of the last column: it is added up as the others are, or it is a key and the extreme one is kept."""


@triton.jit
def moments(blocks, sources, new, old, new_momentum, old_momentum, partial, decay, gain, FORM: tl.constexpr):
    """Accumulate every block; write [5, B]: sum, sum of squares, of magnitudes, non-zeros, largest key."""
    at, exists, piece, _ = block_of(blocks)
    a = accumulated(sources, piece, at, exists, (new, old, new_momentum, old_momentum), (decay, gain), FORM)
    a = tl.where(exists, a, 0.0)
    key, wide = keys_of(a, exists), a.to(tl.float64)
    into, rows = partial + tl.program_id(0), tl.num_programs(0)
    tl.store(into, tl.sum(wide))
    tl.store(into + rows, tl.sum(wide * wide))
    tl.store(into + 2 * rows, tl.sum(tl.abs(wide)))
    tl.store(into + 3 * rows, tl.sum((key > 0).to(tl.int32)).to(tl.float64))
    tl.store(into + 4 * rows, tl.max(key).to(tl.float64))


@triton.jit
def tails(blocks, vector, thresholds, partial, SUMS: tl.constexpr):
    """Write [B], or with SUMS [4, B], of what reaches the threshold: number, sum, sum of squares, smallest key."""
    at, exists, _, segment = block_of(blocks)
    key = keys_of(tl.load(vector + at, mask=exists, other=0.0), exists)
    reached = key > key_below(tl.load(thresholds + segment))
    into, rows = partial + tl.program_id(0), tl.num_programs(0)
    tl.store(into, tl.sum(reached.to(tl.int32)).to(tl.float64))
    if SUMS:
        wide = tl.where(reached, key, 0).to(tl.float32, bitcast=True).to(tl.float64)
        tl.store(into + rows, tl.sum(wide))
        tl.store(into + 2 * rows, tl.sum(wide * wide))
        tl.store(into + 3 * rows, tl.min(tl.where(reached, key, MAGNITUDE)).to(tl.float64))


@triton.jit
def add_up(spans, partial, out, num_blocks, COLUMNS: tl.constexpr, LAST: tl.constexpr, TILE: tl.constexpr):
    """Write [COLUMNS, S] from the partial results [COLUMNS, B]; `spans` [S, 2]: each segment's first block and number.

    A key becomes the magnitude it stands for; the smallest of none is infinite.
    """
    segment = tl.program_id(0)
    first, blocks = tl.load(spans + 2 * segment), tl.load(spans + 2 * segment + 1)
    for column in tl.static_range(COLUMNS):
        row = partial + column * num_blocks + first
        result = tl.zeros([TILE], tl.float64)
        if column == COLUMNS - 1 and LAST == SMALLEST:
            result += MAGNITUDE
        for start in range(0, blocks, TILE):
            at = start + tl.arange(0, TILE)
            if column < COLUMNS - 1 or LAST == SUM:
                result += tl.load(row + at, mask=at < blocks, other=0.0)
            elif LAST == LARGEST:
                result = tl.maximum(result, tl.load(row + at, mask=at < blocks, other=0.0))
            else:
                result = tl.minimum(result, tl.load(row + at, mask=at < blocks, other=MAGNITUDE))
        into = out + column * tl.num_programs(0) + segment
        if column < COLUMNS - 1 or LAST == SUM:
            tl.store(into, tl.sum(result))
        elif LAST == LARGEST:
            tl.store(into, _magnitude(tl.max(result)))
        else:
            key = tl.min(result)
            tl.store(into, tl.where(key == MAGNITUDE, float("inf"), _magnitude(key)))


@triton.jit
def _magnitude(key):
    return key.to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)
