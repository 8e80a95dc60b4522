"""A compressor at work on a batch: gradients accumulate, the payload is filled, what was sent leaves the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.wire.batch import Batch as Batch
from ssfx.wire.batch import Part as Part
from ssfx.wire.batch import Starts as Starts

if TYPE_CHECKING:
    from ssfx.compressors.base import Compressor
    from ssfx.wire.memory import State
    from ssfx.wire.payload import Payload


def propose(compressor: Compressor, batch: Batch) -> None:
    """Accumulate and fill the `first` section, for a compressor of two rounds."""
    batch.accumulate()
    for part in batch.parts:
        if part.numel:
            compressor.propose(batch.vector[part.lo : part.hi], batch.share(part), batch.context(part))


def compress(compressor: Compressor, batch: Batch) -> None:
    """Fill the payload from gradients and memory, and take what was sent out of the memory."""
    batch.cleared = False
    compressor.compress_batch(batch)
    if batch.memory is None or batch.cleared:
        return
    if compressor.sparse and len(batch.payload.indices) == sum(part.layout.indices for part in batch.parts):
        # one call: positions are those of the batch
        _sent(compressor, batch, batch.payload, batch.new, batch.parts[0])
        return
    for part in batch.parts:
        if part.numel:
            whole = compressor.sparse  # indices on the wire are positions in the whole vector
            new = batch.new if whole else {name: buffer[part.lo : part.hi] for name, buffer in batch.new.items()}
            _sent(compressor, batch, batch.share(part), new, part)


def _sent(compressor: Compressor, batch: Batch, payload: Payload, new: State, part: Part) -> None:
    assert batch.memory is not None
    if batch.base and compressor.sparse:
        payload.indices.sub_(batch.base)
    batch.memory.sent(compressor, payload, new, batch.context(part))
    if batch.base and compressor.sparse:
        payload.indices.add_(batch.base)
