"""Triton: exact search for each segment's threshold, digit by digit of the keys.

The keys of the bracket that holds the threshold are counted in 2048 bins; the bin that holds the wanted rank is the
next bracket. The first count is made while the gradient is accumulated; a segment whose threshold is settled is skipped
from then on. `triton_compact` writes what is chosen. Source: D-5, D-9, D-11, D-12.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ssfx.compressors.kernels.triton.memory import accumulated, block_of, key_of_threshold, keys_of

NUMEL = tl.constexpr(0)
LO = tl.constexpr(1)
SLOT = tl.constexpr(2)
CAPACITY = tl.constexpr(3)
LEAST = tl.constexpr(4)
WANTED = tl.constexpr(5)
MOST = tl.constexpr(6)
FLOOR = tl.constexpr(7)
COUNT = tl.constexpr(8)
FIRST_BLOCK = tl.constexpr(9)
BLOCKS = tl.constexpr(10)
SEGMENT_COLUMNS = tl.constexpr(11)
"""Columns of the segment table, int32 [S, 11]. FLOOR: the smallest key that may be chosen, 0 or 1. COUNT: where in the
payload's counts the result goes, -1 if nowhere."""

CUT = tl.constexpr(0)
LOW = tl.constexpr(1)
SKIP = tl.constexpr(2)
TIES = tl.constexpr(3)
ABOVE = tl.constexpr(4)
INSIDE = tl.constexpr(5)
TARGET = tl.constexpr(6)
SETTLED = tl.constexpr(7)
ROTATED = tl.constexpr(8)
KEPT = tl.constexpr(9)
NONZERO = tl.constexpr(10)
REACHED = tl.constexpr(11)
STATE_COLUMNS = tl.constexpr(12)
"""Columns of the state, int32 [S, 12]. Chosen are keys above CUT, and of those from LOW to CUT (ties, usually equal to
it) the TIES that follow the first SKIP. Until it is SETTLED, LOW is where the bracket begins, which holds INSIDE keys
with ABOVE keys above it. KEPT: result. NONZERO and REACHED: counters, zero between steps."""

LARGEST = tl.constexpr(0x7F7FFFFF)  # bits of the largest finite float32: non-finite values always pass
ALL = tl.constexpr(0x7FFFFFFF)
BINS = tl.constexpr(2048)
FIRST_SHIFT = tl.constexpr(20)
SHIFTS = (20, 10, 0)
"""The digits of a key: 11, 10 and 10 bits."""


@triton.jit
def _tally(histogram, segment, key, lo, SHIFT: tl.constexpr):
    """Count the keys of the bracket by digit, except the lowest: it is what remains, and zeros would crowd there."""
    digit = (key - lo) >> SHIFT
    counted = (key >= lo) & (digit > 0)
    if SHIFT != FIRST_SHIFT:
        counted = counted & (digit < BINS // 2)
    tally = tl.histogram(tl.where(counted, digit, 0), BINS, mask=counted)
    bins = tl.arange(0, BINS)
    tl.atomic_add(histogram + segment * BINS + bins, tally, mask=tally > 0, sem="relaxed")


@triton.jit
def _given(thresholds, segment, floor):
    return tl.maximum(tl.minimum(key_of_threshold(tl.load(thresholds + segment)), LARGEST), floor)


@triton.jit
def accumulate_and_count(
    blocks, segments, state, histogram, thresholds, sources, new, old, new_momentum, old_momentum, decay, gain,
    FORM: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """Accumulate every block; count its keys by their first digit, the non-zeros and those that reach the threshold."""
    at, exists, piece, segment = block_of(blocks)
    vectors = (new, old, new_momentum, old_momentum)
    key = keys_of(accumulated(sources, piece, at, exists, vectors, (decay, gain), FORM), exists)
    floor = tl.load(segments + segment * SEGMENT_COLUMNS + FLOOR)
    now = state + segment * STATE_COLUMNS
    tl.atomic_add(now + NONZERO, tl.sum((key > 0).to(tl.int32)), sem="relaxed")
    if GIVEN:
        least = _given(thresholds, segment, floor)
        tl.atomic_add(now + REACHED, tl.sum((key >= least).to(tl.int32)), sem="relaxed")
    _tally(histogram, segment, key, floor, FIRST_SHIFT)


@triton.jit
def count_digits(blocks, state, histogram, vector, SHIFT: tl.constexpr):
    """Count the keys inside the bracket of every segment that is not settled by the digit at SHIFT."""
    at, exists, _, segment = block_of(blocks)
    now = state + segment * STATE_COLUMNS
    if tl.load(now + SETTLED) == 0:
        key = keys_of(tl.load(vector + at, mask=exists, other=0.0), exists)
        _tally(histogram, segment, key, tl.load(now + LOW), SHIFT)


@triton.jit
def begin(segments, state, thresholds, GIVEN: tl.constexpr, ROTATE: tl.constexpr):
    """Set every segment's state from the first counts: settled if all are taken or the given threshold is right."""
    segment = tl.program_id(0)
    row, now = segments + segment * SEGMENT_COLUMNS, state + segment * STATE_COLUMNS
    numel, least, most = tl.load(row + NUMEL), tl.load(row + LEAST), tl.load(row + MOST)
    low, target = tl.load(row + FLOOR), tl.load(row + WANTED)
    nonzero, reached = tl.load(now + NONZERO), tl.load(now + REACHED)
    inside = tl.where(low == 0, numel, nonzero)
    everything = least >= numel
    settled = everything
    rotated = False
    if GIVEN:
        fits = (reached >= least) & (reached <= most)
        settled = settled | fits
        target = tl.where(reached > most, most, target)
        low = tl.where(fits, _given(thresholds, segment, low), low)
        if ROTATE:
            rotated = fits & (reached == 0) & (nonzero > 0) & (everything == 0)
    low = tl.where(everything, 0, low)
    tl.store(now + CUT, low)
    tl.store(now + LOW, low)
    tl.store(now + SKIP, 0)
    tl.store(now + TIES, tl.where(rotated, 0, ALL))
    tl.store(now + ABOVE, 0)
    tl.store(now + INSIDE, inside)
    tl.store(now + TARGET, target)
    tl.store(now + SETTLED, settled.to(tl.int32))
    tl.store(now + ROTATED, rotated)
    tl.store(now + NONZERO, 0)
    tl.store(now + REACHED, 0)


@triton.jit
def narrow(state, histogram, SHIFT: tl.constexpr):
    """Shrink every open bracket to the bin that holds its target, and leave the histogram as zeros.

    A bracket that holds no more than the target is settled: all of it is chosen.
    """
    segment = tl.program_id(0)
    now = state + segment * STATE_COLUMNS
    bins = tl.arange(0, BINS)
    counts = tl.load(histogram + segment * BINS + bins)
    tl.store(histogram + segment * BINS + bins, tl.zeros_like(counts))
    if tl.load(now + SETTLED) == 0:
        above, inside, target = tl.load(now + ABOVE), tl.load(now + INSIDE), tl.load(now + TARGET)
        counts = tl.where(bins == 0, inside - tl.sum(counts), counts)
        over = above + inside - tl.cumsum(counts)  # keys above each bin
        found = tl.maximum(tl.sum((over + counts >= target).to(tl.int32)) - 1, 0)
        above = tl.sum(tl.where(bins == found, over, 0))
        inside = tl.sum(tl.where(bins == found, counts, 0))
        settled = above + inside <= target
        if SHIFT == 0:
            tl.store(now + TIES, tl.where(settled, ALL, target - above))
        tl.store(now + SETTLED, settled.to(tl.int32))
        low = tl.load(now + LOW) + (found << SHIFT)
        tl.store(now + CUT, low)
        tl.store(now + LOW, low)
        tl.store(now + ABOVE, above)
        tl.store(now + INSIDE, inside)
