"""Triton: what a segment's state says is chosen goes to its slots, in ascending order of position.

Blocks count what they will write, one program per segment turns that into offsets, and blocks write. Nothing is read
back by the host. Source: D-5, D-6, D-12.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ssfx.compressors.kernels.triton.memory import BLOCK, block_of, key_below, key_of_threshold, keys_of
from ssfx.compressors.kernels.triton.select import (
    ALL,
    BLOCKS,
    CAPACITY,
    COUNT,
    CUT,
    FIRST_BLOCK,
    KEPT,
    LO,
    LOW,
    NUMEL,
    ROTATED,
    SEGMENT_COLUMNS,
    SKIP,
    SLOT,
    STATE_COLUMNS,
    TIES,
    WANTED,
)


@triton.jit
def band(state, sure, possible, skip):
    """Set every segment's state to what reaches `sure`, and what reaches `possible` after the first `skip` of those."""
    segment = tl.program_id(0)
    now = state + segment * STATE_COLUMNS
    above, reached = tl.load(sure + segment), tl.load(possible + segment)
    tl.store(now + CUT, key_below(above))
    tl.store(now + LOW, key_of_threshold(reached))
    tl.store(now + SKIP, tl.load(skip + segment).to(tl.int32))
    tl.store(now + TIES, tl.where(reached == reached, ALL, 0))
    tl.store(now + ROTATED, 0)


@triton.jit
def _chosen(at, key, row, now, step, ROTATE: tl.constexpr):
    """Return which elements are chosen in any case, and which are ties."""
    cut = tl.load(now + CUT)
    surely, tie = key > cut, (key >= tl.load(now + LOW)) & (key <= cut)
    if ROTATE:
        numel, wanted = tl.load(row + NUMEL), tl.load(row + WANTED)
        offset = ((step.to(tl.int64) * wanted) % tl.maximum(numel, 1)).to(tl.int32)
        turned = at - tl.load(row + LO) - offset
        turned = tl.where(turned < 0, turned + numel, turned)
        rotated = (turned < wanted) & (key >= 0)
        surely = tl.where(tl.load(now + ROTATED) != 0, rotated, surely)
    return surely, tie


@triton.jit(do_not_specialize=["step"])
def count_chosen(blocks, segments, state, vector, before, step, ROTATE: tl.constexpr):
    """Write [B, 2]: how many elements of each block are chosen in any case and how many are ties."""
    at, exists, _, segment = block_of(blocks)
    key = keys_of(tl.load(vector + at, mask=exists, other=0.0), exists)
    row, now = segments + segment * SEGMENT_COLUMNS, state + segment * STATE_COLUMNS
    surely, tie = _chosen(at, key, row, now, step, ROTATE)
    mine = before + 2 * tl.program_id(0)
    tl.store(mine, tl.sum(surely.to(tl.int32)))
    tl.store(mine + 1, tl.sum(tie.to(tl.int32)))


@triton.jit
def offsets(segments, state, before, counts, TILE: tl.constexpr):
    """Turn [B, 2] counts into what lies before each block in its segment, and write how many elements are kept."""
    segment = tl.program_id(0)
    row, now = segments + segment * SEGMENT_COLUMNS, state + segment * STATE_COLUMNS
    mine = before + 2 * tl.load(row + FIRST_BLOCK)
    blocks = tl.load(row + BLOCKS)
    surely = 0
    ties = 0
    for start in range(0, blocks, TILE):
        at = start + tl.arange(0, TILE)
        these = tl.load(mine + 2 * at, mask=at < blocks, other=0)
        those = tl.load(mine + 2 * at + 1, mask=at < blocks, other=0)
        tl.store(mine + 2 * at, surely + tl.cumsum(these) - these, mask=at < blocks)
        tl.store(mine + 2 * at + 1, ties + tl.cumsum(those) - those, mask=at < blocks)
        surely += tl.sum(these)
        ties += tl.sum(those)
    capacity = tl.load(row + CAPACITY)
    granted = tl.minimum(tl.load(now + TIES), tl.maximum(capacity - surely, 0))
    tl.store(now + TIES, granted)
    kept = tl.minimum(surely, capacity) + tl.minimum(tl.maximum(ties - tl.load(now + SKIP), 0), granted)
    tl.store(now + KEPT, kept)
    into = tl.load(row + COUNT)
    tl.store(counts + into, kept, mask=into >= 0)


@triton.jit(do_not_specialize=["step", "base"])
def write(
    blocks,
    segments,
    state,
    before,
    vector,
    momentum,
    indices,
    values,
    step,
    base,
    ROTATE: tl.constexpr,
    CLEAR: tl.constexpr,
    MASK: tl.constexpr,
):
    """Write every segment's chosen elements in ascending order, and its blocks' shares of the padding behind them.

    CLEAR: what is written leaves the vector; MASK: and it leaves the momentum.
    """
    at, exists, _, segment = block_of(blocks)
    a = tl.load(vector + at, mask=exists, other=0.0)
    row, now = segments + segment * SEGMENT_COLUMNS, state + segment * STATE_COLUMNS
    surely, tie = _chosen(at, keys_of(a, exists), row, now, step, ROTATE)
    mine = before + 2 * tl.program_id(0)
    ties, ties_before = tl.load(now + TIES), tl.load(mine + 1) - tl.load(now + SKIP)
    # One scan for both counts: a block has fewer than 2^15 elements of either kind.
    seen = tl.cumsum((surely.to(tl.int32) << 16) + tie.to(tl.int32))
    rank = ties_before + (seen & 0xFFFF)  # among the ties of the segment, from 1 for the first that is not skipped
    chosen = surely | (tie & (rank > 0) & (rank <= ties))
    place = tl.load(mine) + (seen >> 16) + tl.minimum(tl.maximum(rank, 0), ties) - 1
    capacity, slot = tl.load(row + CAPACITY), tl.load(row + SLOT)
    chosen = chosen & (place < capacity)
    tl.store(indices + slot + place, at + base, mask=chosen)
    sent = a
    if values.dtype.element_ty == tl.float16:  # a finite value beyond its range is cut: ssfx.compressors.kernels.narrow
        beyond = (tl.abs(a) > 65504.0) & (tl.abs(a) < float("inf"))
        sent = tl.where(beyond, tl.where(a > 0, 65440.0, -65440.0), a)
    tl.store(values + slot + place, sent.to(values.dtype.element_ty), mask=chosen)
    if CLEAR:
        tl.store(vector + at, tl.zeros_like(a), mask=chosen)
    if MASK:
        tl.store(momentum + at, tl.zeros_like(a), mask=chosen & (a != 0))

    kept = tl.load(now + KEPT)
    share = tl.cdiv(capacity - kept, tl.load(row + BLOCKS))
    first = kept + (tl.program_id(0) - tl.load(row + FIRST_BLOCK)) * share
    last = tl.minimum(first + share, capacity)
    nothing = tl.load(row + LO) + base
    for start in range(first, last, BLOCK):
        pad = start + tl.arange(0, BLOCK)
        tl.store(indices + slot + pad, tl.zeros_like(pad) + nothing, mask=pad < last)
        tl.store(values + slot + pad, tl.zeros_like(pad).to(values.dtype.element_ty), mask=pad < last)
