"""Gradients into the memory of a batch, one call per tensor: what kernels do that cannot do it on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssfx.wire.batch import Batch


def accumulate(batch: Batch) -> None:
    """Bring every piece's `new` up to date with its gradient; `grads` is empty afterwards."""
    if batch.memory is not None:
        for (lo, hi), grad in zip(batch.pieces, batch.grads, strict=True):
            if grad is not None:
                old = {name: buffer[lo:hi] for name, buffer in batch.old.items()}
                batch.memory.accumulate(grad, old, {name: buffer[lo:hi] for name, buffer in batch.new.items()})
    batch.grads = (None,) * len(batch.pieces)
