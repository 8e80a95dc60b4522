"""One pass over all segments of a batch: accumulate, find what reaches each segment's threshold, choose, write.

A segment is a run of the flat vector and consists of pieces, one per tensor. Chunks of a piece are accumulated and
scanned while they lie in the first-level cache, so a step reads the gradient and the memory once and writes the memory
once. Candidates go to a small buffer and leave the memory at once, while their place is in the cache; when the buffer
fills up, an exact choice among them raises the threshold, and what is dropped goes back. So the result is exact however
bad the first threshold was. Source: D-5, D-9 to D-11, D-21.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ssfx.compressors.kernels.cpu.accumulate import ADDRESS, CHUNK, KIND, LENGTH, START, accumulate, accumulate_chunk
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.random_keys import key as random_key
from ssfx.compressors.kernels.cpu.sampling import RUN
from ssfx.compressors.kernels.cpu.take import MAGNITUDE, aligned, take_chunk
from ssfx.compressors.kernels.cpu.vector import floats_at
from ssfx.compressors.kernels.interface import READY

LO, NUMEL, SLOT, CAPACITY, LEAST, WANTED, MOST, FLOOR, STRIDE, RUNS, RANK, PIECE, PIECE_END = range(13)
SHIFT, ROTATE, COUNT = range(13, 16)
"""Columns of the segment table. LEAST, WANTED, MOST: fewer found than LEAST means that exactly WANTED are chosen, more
than MOST are cut. SHIFT: of the sample's seed. ROTATE: 0 if to find nothing is right. COUNT: the result. Nothing else
changes from step to step."""

LARGEST = np.int32(0x7F7FFFFF)  # bits of the largest finite float32: non-finite values always pass
_BINS = 1 << 11


@compiled()
def kth_largest(keys, size, k):  # type: ignore[no-untyped-def]
    """Return the k-th largest of keys[:size] (non-negative int32); overwrites them. At most three radix passes."""
    histogram = np.zeros(_BINS, np.int32)
    for level in range(3):
        shift = 20 if level == 0 else (10 if level == 1 else 0)
        mask = np.int32(_BINS - 1) if level == 0 else np.int32(1023)
        bin_ = np.int32(0)
        for i in range(size):
            of_key = np.int32((keys[i] >> shift) & mask)
            histogram[of_key] += 1
            bin_ = max(bin_, of_key)
        while histogram[bin_] < k:
            k -= histogram[bin_]
            bin_ -= np.int32(1)
        kept = 0
        for i in range(size):
            of_key = np.int32((keys[i] >> shift) & mask)
            histogram[of_key] = 0
            keys[kept] = keys[i]
            kept += int(np.int64(of_key == bin_))
        size = kept
        if size == 1:
            break
    return keys[0]


@compiled()
def give_back(found, taken, size, keys):  # type: ignore[no-untyped-def]
    """Write found[:size] back to where they were taken from."""
    for j in range(size):
        keys[found[j]] = taken[j]


@compiled()
def prune(found, taken, size, keep, scratch, keys, clear):  # type: ignore[no-untyped-def]
    """Cut found[:size] to the `keep` largest magnitudes, ties to the lower position; return the smallest one's key.

    `taken` holds the bits found there; if they were cleared, what is dropped is put back.
    """
    for j in range(size):
        scratch[j] = taken[j] & MAGNITUDE
    least = kth_largest(scratch, size, keep)
    above = 0
    for j in range(size):  # the search above has overwritten the keys
        above += int(np.int64((taken[j] & MAGNITUDE) > least))
    ties = keep - above
    kept = 0
    for j in range(size):
        at, value = found[j], taken[j]
        key = value & MAGNITUDE
        tie = np.int64(key == least)
        found[kept], taken[kept] = at, value
        passes = int(np.int64(key > least) + (tie & np.int64(ties > 0)))
        kept += passes
        ties -= int(tie)
        if clear and passes == 0:
            keys[at] = value
    return least


@compiled()
def scan(there, vectors, weights, keys, least, keep, found, taken, scratch, clear):  # type: ignore[no-untyped-def]
    """Take what reaches `least` in a piece of the vector that is up to date; return how much it is.

    Whenever `found` fills up, an exact choice of `keep` among what was found raises the threshold.
    """
    count, lo, hi = 0, there[START], there[START] + there[LENGTH]
    for chunk in range(aligned(lo, keys), hi, CHUNK):
        if count > 2 * keep:
            least = prune(found, taken, count, keep, scratch, keys, clear) + np.int32(1)
            count = keep
        end = min(chunk + CHUNK, hi)
        count = take_chunk(there, max(chunk, lo), end, vectors, weights, keys, least, clear, found, taken, count)
    return count


@compiled()
def jitter(seed, run, span):  # type: ignore[no-untyped-def]
    """Return a position in [0, span) for one run of a sample: equal strides would meet equal columns of a matrix."""
    mixed = ((seed + run) * 2654435761) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) % span


@compiled()
def sampled_key(segment, pieces, vectors, weights, seed, scratch, sampled):  # type: ignore[no-untyped-def]
    """Return the key that about RANK of a full sample reach, from runs spread over the segment's pieces."""
    new, old, _, old_momentum = vectors
    room = len(sampled) - RUN  # behind it: what the momentum of a run would become, not needed
    sampled_keys = sampled.view(np.int32)
    size = 0
    piece = segment[PIECE]
    for run in range(segment[RUNS]):
        at = segment[LO] + run * segment[STRIDE]
        if segment[STRIDE] > RUN:
            at += jitter(seed, run, segment[STRIDE] - RUN + 1)
        while at >= pieces[piece, START] + pieces[piece, LENGTH]:
            piece += 1
        start, kind = pieces[piece, START], pieces[piece, KIND]
        end = min(at + RUN, start + pieces[piece, LENGTH])
        into = sampled[size : size + end - at]
        if kind == READY:
            into[:] = new[at:end]
        else:
            grad = carray(floats_at(pieces[piece, ADDRESS]), pieces[piece, LENGTH])[at - start : end - start]
            unused = sampled[room : room + end - at]
            accumulate(kind, grad, old[at:end], into, old_momentum[at:end], unused, weights[0], weights[1])
        size += end - at
    for j in range(size):
        scratch[j] = sampled_keys[j] & MAGNITUDE
    rank = segment[RANK] * size // (segment[RUNS] * RUN)
    return kth_largest(scratch, size, min(size, max(1, rank)))


@compiled()
def rotated(keys, lo, n, offset, wanted, found, taken, clear):  # type: ignore[no-untyped-def]
    """Take `wanted` positions from a rotating offset on, unless all elements are zero; return how many.

    A threshold above everything must not silence a tensor for ever (D-2).
    """
    if not np.any(keys[lo : lo + n] & MAGNITUDE):
        return 0
    wrapped = max(0, offset + wanted - n)
    for j in range(wanted):
        i = lo + (j if j < wrapped else offset + j - wrapped)
        found[j], taken[j] = i, keys[i]
        if clear:
            keys[i] = 0
    return wanted


@compiled()
def _clear_where_sent(values, lo, momentum):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        if values[i] != 0:
            momentum[lo + i] = 0


@compiled()
def select(  # type: ignore[no-untyped-def]
    table, pieces, vectors, weights, keys, thresholds, indices, values, base, clear, mask, seed, step, rank, buffers
):
    """Fill the slots of every segment of the table and its COUNT; `backend` says what the arrays hold.

    `thresholds` [S]: keys, or -1 where one is to be sampled. `clear`: what is written leaves `new`; `mask`: and it
    leaves `new_momentum`.
    """
    new, new_momentum = vectors[0], vectors[2]
    sent = values.view(np.int32)
    found, taken, scratch, sampled = buffers
    there = np.zeros(LENGTH + 1, np.int64)
    there[KIND] = READY
    of_step = np.int64(random_key(seed, 0, step, rank) & np.uint64(0xFFFFFFFF))
    for s in range(len(table)):
        segment = table[s]
        lo, n, slot, most = segment[LO], segment[NUMEL], segment[SLOT], segment[MOST]
        take_all = segment[LEAST] >= n
        least = np.int32(thresholds[s])
        if least < 0 and not take_all:
            own = (of_step + segment[SHIFT]) & 0xFFFFFFFF
            least = sampled_key(segment, pieces, vectors, weights, own, scratch, sampled)
        least = min(max(least, np.int32(segment[FLOOR])), LARGEST)
        count = 0
        for piece in pieces[segment[PIECE] : segment[PIECE_END]]:
            stop = piece[START] + piece[LENGTH]
            for chunk in range(aligned(piece[START], keys), stop, CHUNK):
                begin, end = max(chunk, piece[START]), min(chunk + CHUNK, stop)
                if take_all:
                    accumulate_chunk(piece, begin, end, vectors, weights)
                else:
                    if count > 2 * most:
                        least = prune(found, taken, count, most, scratch, keys, clear) + np.int32(1)
                        count = most
                    count = take_chunk(piece, begin, end, vectors, weights, keys, least, clear, found, taken, count)
        if take_all:
            for i in range(n):
                indices[slot + i] = base + lo + i
                values[slot + i] = new[lo + i]
            if clear:
                new[lo : lo + n] = 0
            if mask:
                _clear_where_sent(values[slot : slot + n], lo, new_momentum)
            segment[COUNT] = n
            continue
        keep = most
        if count < segment[LEAST]:
            if clear:
                give_back(found, taken, count, keys)
            keep = segment[WANTED]
            there[START], there[LENGTH] = lo, n
            floor = np.int32(segment[FLOOR])
            count = scan(there, vectors, weights, keys, floor, keep, found, taken, scratch, clear)
        if count > keep:
            prune(found, taken, count, keep, scratch, keys, clear)
            count = keep
        if count == 0 and segment[ROTATE]:
            offset = step * segment[WANTED] % n
            count = rotated(keys, lo, n, offset, segment[WANTED], found, taken, clear)
        for j in range(count):
            indices[slot + j] = base + found[j]
            sent[slot + j] = taken[j]
        if mask:
            for j in range(count):
                if values[slot + j] != 0:
                    new_momentum[found[j]] = 0
        for j in range(count, segment[CAPACITY]):
            indices[slot + j] = base + lo
            values[slot + j] = 0
        segment[COUNT] = count
