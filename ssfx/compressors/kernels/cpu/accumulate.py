"""What a memory does with a gradient, one cache-sized chunk at a time: the first pass of every compiled step."""

from __future__ import annotations

from numba import carray

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.vector import floats_at
from ssfx.compressors.kernels.interface import COPY, READY, RESIDUAL

KIND, ADDRESS, START, LENGTH = range(4)
"""Columns of the table of pieces: how it is accumulated, where its gradient lies, and its part of the flat vector."""
CHUNK = 2048
"""Elements that are accumulated at once, and looked at while they lie in the first-level cache."""


@compiled()
def _copy(grad, new):  # type: ignore[no-untyped-def]
    for i in range(len(new)):
        new[i] = grad[i]


@compiled()
def _residual(grad, old, new, decay, gain):  # type: ignore[no-untyped-def]
    for i in range(len(new)):
        new[i] = decay * old[i] + gain * grad[i]


@compiled()
def _dgc(grad, old, new, old_momentum, new_momentum, decay):  # type: ignore[no-untyped-def]
    for i in range(len(new)):
        momentum = decay * old_momentum[i] + grad[i]
        new_momentum[i] = momentum
        new[i] = old[i] + momentum


@compiled(inline="always")
def accumulate(kind, grad, old, new, old_momentum, new_momentum, decay, gain):  # type: ignore[no-untyped-def]
    """Write `new` (and `new_momentum`) of one chunk; for DGC `decay` is the momentum.

    The loops are functions of their own: side by side in one they are not vectorised.
    """
    if kind == COPY:
        _copy(grad, new)
    elif kind == RESIDUAL:
        _residual(grad, old, new, decay, gain)
    else:
        _dgc(grad, old, new, old_momentum, new_momentum, decay)


@compiled()
def accumulate_chunk(piece, chunk, end, vectors, weights):  # type: ignore[no-untyped-def]
    """Bring elements chunk .. end - 1 of the flat vectors up to date with the gradient of their piece, a table row."""
    kind, start, length = piece[KIND], piece[START], piece[LENGTH]
    if kind != READY:
        new, old, new_momentum, old_momentum = vectors
        grad = carray(floats_at(piece[ADDRESS]), length)[chunk - start : end - start]
        accumulate(
            kind,
            grad,
            old[chunk:end],
            new[chunk:end],
            old_momentum[chunk:end],
            new_momentum[chunk:end],
            weights[0],
            weights[1],
        )
