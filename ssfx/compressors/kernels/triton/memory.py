"""Triton: one block of a batch's flat vector, with the gradient accumulated on the way, and the keys it is compared by.

A block is a run of at most BLOCK elements of one piece; which run is a table made at plan time, so that one launch
covers every tensor of a bucket. Source: D-6, D-9, D-11, D-16.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from ssfx.compressors.kernels import interface

BLOCK = tl.constexpr(4096)
"""Elements of one program."""
START = tl.constexpr(0)
END = tl.constexpr(1)
PIECE = tl.constexpr(2)
SEGMENT = tl.constexpr(3)
BLOCK_COLUMNS = tl.constexpr(4)
"""Columns of the block table, int32 [B, 4]."""
READY = tl.constexpr(interface.READY)
COPY = tl.constexpr(interface.COPY)
RESIDUAL = tl.constexpr(interface.RESIDUAL)
NOTHING = tl.constexpr(0)
FLOAT32 = tl.constexpr(1)
FLOAT16 = tl.constexpr(2)
BFLOAT16 = tl.constexpr(3)
"""What lies at a piece's address; with NOTHING the vector is up to date there."""

MAGNITUDE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def block_of(blocks):
    """Return the positions of this program's elements, which of them exist, their piece and their segment."""
    row = blocks + tl.program_id(0) * BLOCK_COLUMNS
    at = tl.load(row + START) + tl.arange(0, BLOCK)
    return at, at < tl.load(row + END), tl.load(row + PIECE), tl.load(row + SEGMENT)


@triton.jit
def keys_of(a, exists):
    """Return int32 numbers that order like magnitudes, NaN above all, and -1 for what does not exist."""
    return tl.where(exists, a.to(tl.int32, bitcast=True) & MAGNITUDE, -1)


@triton.jit
def key_of_threshold(threshold):
    """Return the key of a magnitude; NaN and what is below zero count as zero."""
    threshold = threshold.to(tl.float32)
    return tl.where(threshold > 0, threshold, 0.0).to(tl.int32, bitcast=True)


@triton.jit
def key_below(threshold):
    """Return the largest key that does not reach a threshold; no key reaches NaN."""
    return tl.where(threshold == threshold, key_of_threshold(threshold) - 1, MAGNITUDE)


@triton.jit
def gradient(sources, piece, at, exists):
    """Return a block of a piece's gradient as float32; `sources` [P, 2] holds addresses of position 0 and types."""
    address = tl.load(sources + 2 * piece)
    type_ = tl.load(sources + 2 * piece + 1)
    if type_ == FLOAT32:
        grad = tl.load(address.to(tl.pointer_type(tl.float32)) + at, mask=exists, other=0.0)
    elif type_ == FLOAT16:
        grad = tl.load(address.to(tl.pointer_type(tl.float16)) + at, mask=exists, other=0.0).to(tl.float32)
    else:
        grad = tl.load(address.to(tl.pointer_type(tl.bfloat16)) + at, mask=exists, other=0.0).to(tl.float32)
    return grad


@triton.jit
def accumulated(sources, piece, at, exists, vectors, weights, FORM: tl.constexpr):
    """Return a block of the flat vector after its gradient was added; for DGC the first weight is the momentum."""
    new, old, new_momentum, old_momentum = vectors
    decay, gain = weights
    a = tl.load(new + at, mask=exists, other=0.0)
    if FORM != READY:  # noqa: SIM102 - one is decided when the kernel is compiled
        if tl.load(sources + 2 * piece + 1) != NOTHING:
            grad = gradient(sources, piece, at, exists)
            if FORM == COPY:
                a = grad
            else:
                a = tl.load(old + at, mask=exists, other=0.0)
                if FORM == RESIDUAL:
                    a = decay * a + gain * grad
                else:
                    momentum = tl.load(old_momentum + at, mask=exists, other=0.0)
                    momentum = decay * momentum + grad
                    a = a + momentum
                    tl.store(new_momentum + at, momentum, mask=exists)
            tl.store(new + at, a, mask=exists)
    return a
