"""Triton: exact search for each segment's threshold, digit by digit of the keys.

The keys of the bracket that holds the threshold are counted in bins; the bin that holds the wanted rank is the next
bracket. The first count is made while the gradient is accumulated, unless thresholds are given, which usually fit; a
segment whose threshold is settled is skipped from then on. `compact` writes what is chosen. Source: D-5, D-9,
D-11, D-12.
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
WIDE, NARROW = (11, 10, 10), (7, 6, 6, 6, 6)
DIGITS = WIDE if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8) else NARROW
"""Bits of a key's digits. Before 3.8 Triton counts by votes of a warp, which take instructions for each bin."""


def digits(bits: tuple[int, ...]) -> list[dict[str, int]]:
    """Return SHIFT and BINS of digits of so many bits, highest first."""
    return [{"SHIFT": sum(bits[i + 1 :]), "BINS": 1 << own} for i, own in enumerate(bits)]


@triton.jit
def _digit(key, lo, SHIFT: tl.constexpr, BINS: tl.constexpr):
    """Return each key's digit in the bracket, 0 outside."""
    digit = (key - lo) >> SHIFT
    return tl.where((digit > 0) & (digit < BINS), digit, 0)


@triton.jit
def _tally(histogram, segment, digit, BINS: tl.constexpr):
    """Count digits, except 0: keys of the lowest bin are what remains, and zeros would crowd there."""
    tally = tl.histogram(digit, BINS, mask=digit > 0)
    bins = tl.arange(0, BINS)
    tl.atomic_add(histogram + segment * BINS + bins, tally, mask=tally > 0, sem="relaxed")


@triton.jit
def _given(thresholds, segment, floor):
    return tl.maximum(tl.minimum(key_of_threshold(tl.load(thresholds + segment)), LARGEST), floor)


@triton.jit
def _opened(segments, state, thresholds, segment, GIVEN: tl.constexpr, ROTATE: tl.constexpr):
    """Return a segment's first bracket: its beginning, keys inside, target, is it settled, is the choice rotated.

    It is settled if all are taken or the given threshold is right.
    """
    row, now = segments + segment * SEGMENT_COLUMNS, state + segment * STATE_COLUMNS
    numel, least, most = tl.load(row + NUMEL), tl.load(row + LEAST), tl.load(row + MOST)
    nonzero, reached = tl.load(now + NONZERO), tl.load(now + REACHED)
    low = tl.load(row + FLOOR)
    inside = tl.where(low == 0, numel, nonzero)
    target = tl.where(reached > most, most, tl.load(row + WANTED))
    everything = least >= numel
    fits = (reached >= least) & (reached <= most) & GIVEN
    rotated = fits & (reached == 0) & (nonzero > 0) & (least < numel) & ROTATE
    if GIVEN:
        low = tl.where(fits, _given(thresholds, segment, low), low)
    return tl.where(everything, 0, low), inside, target, everything | fits, rotated


@triton.jit
def accumulate_and_count(
    blocks,
    segments,
    state,
    histogram,
    thresholds,
    sources,
    new,
    old,
    new_momentum,
    old_momentum,
    decay,
    gain,
    FORM: tl.constexpr,
    GIVEN: tl.constexpr,
    SHIFT: tl.constexpr,
    BINS: tl.constexpr,
):
    """Accumulate every block; count its non-zeros, and its keys by first digit or those that reach the threshold."""
    at, exists, piece, segment = block_of(blocks)
    vectors = (new, old, new_momentum, old_momentum)
    key = keys_of(accumulated(sources, piece, at, exists, vectors, (decay, gain), FORM), exists)
    floor = tl.load(segments + segment * SEGMENT_COLUMNS + FLOOR)
    now = state + segment * STATE_COLUMNS
    tl.atomic_add(now + NONZERO, tl.sum((key > 0).to(tl.int32)), sem="relaxed")
    if GIVEN:
        least = _given(thresholds, segment, floor)
        tl.atomic_add(now + REACHED, tl.sum((key >= least).to(tl.int32)), sem="relaxed")
    else:
        _tally(histogram, segment, _digit(key, floor, SHIFT, BINS), BINS)


@triton.jit
def count_digits(
    blocks,
    segments,
    state,
    histogram,
    thresholds,
    vector,
    FIRST: tl.constexpr,
    SHIFT: tl.constexpr,
    BINS: tl.constexpr,
):
    """Count the keys inside the bracket of every segment that is not settled by a digit; FIRST: by given thresholds."""
    at, exists, _, segment = block_of(blocks)
    if FIRST:
        low, _, _, settled, _ = _opened(segments, state, thresholds, segment, True, False)
    else:
        now = state + segment * STATE_COLUMNS
        low, settled = tl.load(now + LOW), tl.load(now + SETTLED)
    if settled == 0:
        digit = _digit(keys_of(tl.load(vector + at, mask=exists, other=0.0), exists), low, SHIFT, BINS)
        if tl.max(digit) > 0:  # most blocks hold nothing of a late bracket, and are only read
            _tally(histogram, segment, digit, BINS)


@triton.jit
def narrow(
    segments,
    state,
    histogram,
    thresholds,
    FIRST: tl.constexpr,
    GIVEN: tl.constexpr,
    ROTATE: tl.constexpr,
    SHIFT: tl.constexpr,
    BINS: tl.constexpr,
):
    """Shrink every open bracket to the bin that holds its target, and leave the histogram as zeros.

    FIRST: the bracket is the first one, and the state begins. A bracket that holds no more than the target is settled:
    all of it is chosen.
    """
    segment = tl.program_id(0)
    now = state + segment * STATE_COLUMNS
    bins = tl.arange(0, BINS)
    counts = tl.load(histogram + segment * BINS + bins)
    if FIRST:
        above = 0
        low, inside, target, settled, rotated = _opened(segments, state, thresholds, segment, GIVEN, ROTATE)
    else:
        above, low, inside = tl.load(now + ABOVE), tl.load(now + LOW), tl.load(now + INSIDE)
        target, settled = tl.load(now + TARGET), tl.load(now + SETTLED)
    tl.debug_barrier()  # every thread has read what one thread writes below
    tl.store(histogram + segment * BINS + bins, tl.zeros_like(counts))
    if FIRST:
        tl.store(now + CUT, low)
        tl.store(now + LOW, low)
        tl.store(now + SKIP, 0)
        tl.store(now + TIES, tl.where(rotated, 0, ALL))
        tl.store(now + TARGET, target)
        tl.store(now + SETTLED, settled.to(tl.int32))
        tl.store(now + ROTATED, rotated.to(tl.int32))
        tl.store(now + NONZERO, 0)
        tl.store(now + REACHED, 0)
    if settled == 0:
        counts = tl.where(bins == 0, inside - tl.sum(counts), counts)
        over = above + inside - tl.cumsum(counts)  # keys above each bin
        found = tl.maximum(tl.sum((over + counts >= target).to(tl.int32)) - 1, 0)
        higher = tl.sum(tl.where(bins == found, over, 0))
        held = tl.sum(tl.where(bins == found, counts, 0))
        enough = higher + held <= target
        if SHIFT == 0:
            tl.store(now + TIES, tl.where(enough, ALL, target - higher))
        tl.store(now + SETTLED, enough.to(tl.int32))
        tl.store(now + CUT, low + (found << SHIFT))
        tl.store(now + LOW, low + (found << SHIFT))
        tl.store(now + ABOVE, higher)
        tl.store(now + INSIDE, held)
