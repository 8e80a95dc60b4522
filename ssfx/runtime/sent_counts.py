"""What a message really holds in the latest step: elements, density of each segment, tensors that were left out."""

from collections.abc import Mapping

import torch

from ssfx.compressors import Compressor
from ssfx.planning.plan import Lane
from ssfx.runtime.message_layout import MessageLayout


class SentCounts:
    """Reads a message's bytes; `slots` are the elements (lo, hi) of each tensor in its flat vector."""

    def __init__(
        self, lane: Lane, layout: MessageLayout, message: torch.Tensor, compressor: Compressor | None,
        slots: Mapping[str, tuple[int, int]],
    ) -> None:  # fmt: skip
        self._lane, self._layout, self._message, self._slots = lane, layout, message, slots
        self._compressor = compressor
        self._packed = [i for i in layout.order if not lane.segments[i].dense]

    def elements(self) -> int:
        """Return this rank's count: reported by the compressor where it varies, else fixed by the layout."""
        dense = sum(n for n, segment in zip(self._layout.numel, self._lane.segments, strict=True) if segment.dense)
        return dense + sum(self._counts())

    def density_ratios(self) -> list[float]:
        """Return achieved over target density of each segment that is to send a fraction, but at least one element."""
        densities = [self._lane.segments[i].density for i in self._packed]
        targets = [density * self._layout.numel[i] for i, density in zip(self._packed, densities, strict=True)]
        counted = zip(self._counts(), targets, densities, strict=True)
        return [sent / target for sent, target, density in counted if density < 1 and target >= 1]

    def _counts(self) -> list[int]:
        """Return the elements of each compressed segment; all counts are read at once, which waits for a GPU once."""
        counts = self._layout.counts.of(self._message).tolist()
        sent = []
        for i in self._packed:
            layout, at = self._layout.layouts[i], self._layout.starts[i].counts
            fixed = layout.values or layout.indices or self._layout.numel[i]
            sent.append(sum(counts[at : at + layout.counts]) if layout.counts else fixed)
        return sent

    def tensors_without_elements(self) -> int | None:
        """Return how many tensors have no index in this rank's latest message; None if the payload does not tell."""
        layouts, numel = self._layout.layouts, self._layout.numel
        if self._compressor is None or all(layout.values >= n for layout, n in zip(layouts, numel, strict=True)):
            return 0
        if not self._compressor.sparse:
            return None
        missing = 0
        for i in self._packed:
            names = self._lane.segments[i].tensors
            payload = self._layout.payload(self._message, i)
            used = int(payload.counts.sum()) if len(payload.counts) else len(payload.indices)
            if len(names) == 1:
                missing += used == 0 and numel[i] > 0
                continue
            ends = torch.tensor([self._slots[name][1] for name in names])
            hit = torch.bucketize(payload.indices[:used].cpu(), ends, right=True).unique()
            filled = sum(self._slots[name][1] > self._slots[name][0] for name in names)
            missing += filled - len(hit)
        return missing
