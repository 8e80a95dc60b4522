"""The largest elements of every chunk of a segment: how segments are cut, and the plain-torch path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ssfx.compressors.kernels.gradients import accumulate
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.wire.batch import Batch


class Chunks(NamedTuple):
    """`number` chunks of `size` elements that keep `keep` each, and a shorter one at the end that keeps `keep_rest`."""

    number: int
    size: int
    keep: int
    keep_rest: int

    @property
    def kept(self) -> int:
        """Elements kept of all chunks."""
        return self.number * self.keep + self.keep_rest


def largest_of_chunks(batch: Batch, cuts: Sequence[Chunks]) -> None:
    """Accumulate; every segment's slots hold the largest magnitudes of each chunk of its cut, in ascending order.

    Ties go to the lower position, NaN counts as larger than anything.
    """
    accumulate(batch)
    for part, cut in zip(batch.parts, cuts, strict=True):
        a, payload = batch.vector[part.lo : part.hi], batch.share(part)
        bits = a.view(torch.int32) & 0x7FFFFFFF
        whole = cut.number * cut.size
        order = bits[:whole].view(cut.number, cut.size).argsort(dim=1, descending=True, stable=True)
        first = torch.arange(0, whole, cut.size, device=a.device)[:, None]
        rest = bits[whole:].argsort(descending=True, stable=True)[: cut.keep_rest] + whole
        chosen = torch.cat([(order[:, : cut.keep] + first).view(-1), rest]).sort().values
        payload.indices.copy_(chosen + part.lo + batch.base)
        payload.values.copy_(a[chosen])
