"""RedSync's policy of sizes: a batch's small segments are sent as they are, the others go to two compressors.

What a segment's layout holds tells which it is: values alone, values with indices, or a count as well. The paper sends
small tensors in an all-reduce of their own; here they travel beside the others, without indices, which costs the same
for few ranks. Source: D-22.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ssfx.compressors.base import Layout, Payload
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels.gradients import accumulate
from ssfx.compressors.kernels.narrow import narrow

if TYPE_CHECKING:
    from ssfx.compressors.base import Compressor


def by_layout(batch: Batch, exact: Compressor, counted: Compressor) -> None:
    """Accumulate, and fill every segment's payload: of those with a count by `counted`, of those without by `exact`.

    Positions count from each segment's own start.
    """
    accumulate(batch)
    for part in batch.parts:
        if not part.layout.indices:
            narrow(batch.share(part).values, batch.vector[part.lo : part.hi])
    for name, compressor, counts in (("exact", exact, 0), ("counted", counted, 1)):
        own = [i for i, part in enumerate(batch.parts) if part.layout.indices and part.layout.counts == counts]
        if own:
            group: Batch = batch.once(name, lambda own=own: _group(batch, own))  # type: ignore[misc]
            group.new, group.step, group.rank, group.seed = batch.new, batch.step, batch.rank, batch.seed
            group.states = [batch.states[i] for i in own]
            compressor.compress_batch(group)
            for i, part in zip(own, group.parts, strict=True):
                _bring(group.share(part), batch.share(batch.parts[i]), part.lo)


def _group(batch: Batch, own: list[int]) -> Batch:
    """Return some of the parts as a batch with a payload of its own, where indices and values lie side by side."""
    parts: list[Part] = []
    counts = slots = 0
    for i in own:
        layout = batch.parts[i].layout
        parts.append(replace(batch.parts[i], starts=Starts(counts=counts, indices=slots, values=slots)))
        counts, slots = counts + layout.counts, slots + layout.indices
    layout = Layout(counts=counts, indices=slots, values=slots, value_dtype=parts[0].layout.value_dtype)
    return Batch(tuple(parts), Payload.allocate(layout, batch.vector.device), batch.new)


def _bring(found: Payload, share: Payload, start: int) -> None:
    share.counts.copy_(found.counts)
    share.indices.copy_(found.indices - start)
    share.values.copy_(found.values)
