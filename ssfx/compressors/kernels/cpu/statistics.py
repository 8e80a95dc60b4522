"""Sums over the segments of a batch in one pass each, in float64 regardless of magnitudes, and a choice from a band.

Chunks are accumulated and summed while they lie in the first-level cache. Loops that only sum have no branches, so that
they become vector code. Source: D-11, D-22, D-23, D-38.
"""

from __future__ import annotations

import numpy as np

from ssfx.compressors.kernels.cpu.accumulate import CHUNK, LENGTH, START, accumulate_chunk
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.take import MAGNITUDE

LO, HI, PIECE, PIECE_END = range(4)
"""Columns of the table of segments."""
LEAVE_OUT = np.int32(-1)
"""The key that stands for no threshold: the segment is not read."""

_SUMS = {"reassoc", "nsz"}  # sums may be taken in any order; NaN and Inf keep their meaning
_ABOVE_ALL = np.int32(0x7FFFFFFF)


@compiled(fastmath=_SUMS)
def _chunk_sums(a):  # type: ignore[no-untyped-def]
    total = square = absolute = 0.0
    for i in range(len(a)):
        x = np.float64(a[i])
        total += x
        square += x * x
        absolute += abs(x)
    return total, square, absolute


@compiled()
def _chunk_keys(keys):  # type: ignore[no-untyped-def]
    largest = np.int32(0)
    nonzero = np.int32(0)
    for i in range(len(keys)):
        key = np.int32(keys[i] & MAGNITUDE)
        largest = key if key > largest else largest
        nonzero = np.int32(nonzero + np.int32(key > 0))
    return largest, nonzero


@compiled()
def _chunk_count(keys, least):  # type: ignore[no-untyped-def]
    count = np.int32(0)
    for i in range(len(keys)):
        count = np.int32(count + np.int32(np.int32(keys[i] & MAGNITUDE) >= least))
    return count


@compiled()
def _chunk_tail(keys, least, kept):  # type: ignore[no-untyped-def]
    """Write the magnitudes that reach `least`, as keys, and zeros between them; return the smallest key."""
    smallest = _ABOVE_ALL
    for i in range(len(keys)):
        key = np.int32(keys[i] & MAGNITUDE)
        reached = np.int32(-np.int32(key >= least))  # all bits or none
        kept[i] = np.int32(key & reached)
        other = np.int32(key | np.int32(~reached & MAGNITUDE))
        smallest = other if other < smallest else smallest
    return smallest


@compiled()
def moments(segments, pieces, vectors, weights, keys, out, largest):  # type: ignore[no-untyped-def]
    """Accumulate every piece; write [4, S]: sum, sum of squares, of magnitudes, non-zeros, and [S]: largest key."""
    new = vectors[0]
    out[:] = 0
    largest[:] = 0
    for s in range(len(segments)):
        for piece in pieces[segments[s, PIECE] : segments[s, PIECE_END]]:
            stop = piece[START] + piece[LENGTH]
            for chunk in range(piece[START], stop, CHUNK):
                end = min(chunk + CHUNK, stop)
                accumulate_chunk(piece, chunk, end, vectors, weights)
                total, square, absolute = _chunk_sums(new[chunk:end])
                highest, nonzero = _chunk_keys(keys[chunk:end])
                out[0, s] += total
                out[1, s] += square
                out[2, s] += absolute
                out[3, s] += nonzero
                largest[s] = max(largest[s], highest)


@compiled()
def counts(segments, keys, least, out):  # type: ignore[no-untyped-def]
    """Write [S]: how many keys of each segment reach `least` [S]."""
    out[:] = 0
    for s in range(len(segments)):
        if least[s] == LEAVE_OUT:
            continue
        for chunk in range(segments[s, LO], segments[s, HI], CHUNK):
            out[s] += _chunk_count(keys[chunk : min(chunk + CHUNK, segments[s, HI])], least[s])


@compiled()
def tails(segments, keys, least, out, smallest):  # type: ignore[no-untyped-def]
    """Write [3, S]: number, sum and sum of squares of the magnitudes that reach `least` [S], and [S]: smallest key."""
    out[:] = 0
    smallest[:] = _ABOVE_ALL
    kept = np.empty(CHUNK, np.int32)
    magnitudes = kept.view(np.float32)
    for s in range(len(segments)):
        if least[s] == LEAVE_OUT:
            continue
        for chunk in range(segments[s, LO], segments[s, HI], CHUNK):
            end = min(chunk + CHUNK, segments[s, HI])
            count = _chunk_count(keys[chunk:end], least[s])
            if count:  # far out in the tail most chunks have none
                smallest[s] = min(smallest[s], _chunk_tail(keys[chunk:end], least[s], kept))
                total, square, _ = _chunk_sums(magnitudes[: end - chunk])
                out[0, s] += count
                out[1, s] += total
                out[2, s] += square


@compiled()
def choose_band(segments, keys, vector, sure, band, skip, slots, base, indices, values):  # type: ignore[no-untyped-def]
    """Fill slots [S, 2] (start, number): what reaches `sure`, and between it and `band` a run after `skip` of them."""
    for s in range(len(segments)):
        room = slots[s, 1]
        wanted = room
        for chunk in range(segments[s, LO], segments[s, HI], CHUNK):
            wanted -= _chunk_count(keys[chunk : min(chunk + CHUNK, segments[s, HI])], sure[s])
        seen = filled = 0
        for i in range(segments[s, LO], segments[s, HI]):
            key = np.int32(keys[i] & MAGNITUDE)
            if key < band[s]:
                continue
            taken = key >= sure[s]
            if not taken:
                taken = skip[s] <= seen < skip[s] + wanted
                seen += 1
            if taken and filled < room:
                indices[slots[s, 0] + filled] = base + i
                values[slots[s, 0] + filled] = vector[i]
                filled += 1
        for j in range(filled, room):
            indices[slots[s, 0] + j] = base + segments[s, LO]
            values[slots[s, 0] + j] = 0
