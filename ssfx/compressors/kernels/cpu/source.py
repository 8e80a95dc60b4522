"""Where compiled kernels find a batch's gradients and memory: arrays that are made once and pointed anew each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.compressors.kernels.cpu.accumulate import ADDRESS, KIND, LENGTH, START
from ssfx.compressors.kernels.gradients import accumulate
from ssfx.compressors.kernels.interface import READY, Form
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch

_EMPTY = np.empty(0, np.float32)


@dataclass
class Source:
    """Where a step's gradients and memory are, as `ssfx.compressors.kernels.cpu.accumulate` takes them.

    `vectors` are the memory's buffers: new, old, new and old momentum; `keys` are the bits of the first.
    """

    pieces: NDArray[np.int64]
    weights: NDArray[np.float32]
    form: Form | None
    vectors: tuple[NDArray[np.float32], ...] = ()
    keys: NDArray[np.int32] = field(default_factory=lambda: _EMPTY.view(np.int32))
    pairs: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)

    def use(self, batch: Batch) -> None:
        """Point to the buffers of this step; they take turns, so arrays are made once per pair."""
        pair = (id(batch.new), id(batch.old))
        if pair not in self.pairs:
            if len(self.pairs) > 1:
                self.pairs.clear()
            new = [buffer.numpy() for buffer in batch.new.values()] + [_EMPTY]
            old = [buffer.numpy() for buffer in batch.old.values()] + [_EMPTY, _EMPTY]
            vectors = (new[0], old[0], new[1], old[1])
            self.pairs[pair] = (vectors, new[0].view(np.int32), batch.new, batch.old)  # held, so that ids stay theirs
        self.vectors, self.keys = self.pairs[pair][:2]


def point(batch: Batch) -> Source:
    """Return where the kernels find the batch's gradients, which count as accumulated from now on.

    A gradient that the kernels cannot read, or a memory that they do not know, is accumulated here instead.
    """
    source: Source = batch.once("source", lambda: _source(batch))
    source.use(batch)
    pieces, form, left = source.pieces, source.form, False
    grads = list(batch.grads)
    for i, grad in enumerate(grads):
        pieces[i, KIND] = READY
        if grad is None:
            continue
        if form is not None and grad.dtype == torch.float32 and grad.is_contiguous():
            pieces[i, KIND] = form.kind
            pieces[i, ADDRESS] = grad.data_ptr()
            grads[i] = None
        else:
            left = True
    batch.grads = grads
    if left:
        accumulate(batch)
    return source


def _source(batch: Batch) -> Source:
    pieces = np.zeros((len(batch.pieces), LENGTH + 1), np.int64)
    for row, (lo, hi) in zip(pieces, batch.pieces, strict=True):
        row[START], row[LENGTH] = lo, hi - lo
    form = batch.memory.form if batch.memory is not None else None
    weights = np.array([form.decay, form.gain] if form is not None else [0, 0], np.float32)
    return Source(pieces, weights, form)
