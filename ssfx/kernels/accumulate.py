"""What a memory does with a gradient, one cache-sized chunk at a time: the first pass of every compiled step."""

from __future__ import annotations

from ssfx.kernels import COPY, DGC, RESIDUAL
from ssfx.kernels.jit import compiled


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


@compiled()
def _nesterov(grad, old, new, old_momentum, new_momentum, decay):  # type: ignore[no-untyped-def]
    for i in range(len(new)):
        momentum = decay * (old_momentum[i] + grad[i])
        new_momentum[i] = momentum
        new[i] = old[i] + grad[i] + momentum


@compiled(inline="always")
def accumulate(kind, grad, old, new, old_momentum, new_momentum, decay, gain):  # type: ignore[no-untyped-def]
    """Write `new` (and `new_momentum`) of one chunk; for DGC `decay` is the momentum.

    The loops are functions of their own: side by side in one they are not vectorised.
    """
    if kind == COPY:
        _copy(grad, new)
    elif kind == RESIDUAL:
        _residual(grad, old, new, decay, gain)
    elif kind == DGC:
        _dgc(grad, old, new, old_momentum, new_momentum, decay)
    else:
        _nesterov(grad, old, new, old_momentum, new_momentum, decay)
