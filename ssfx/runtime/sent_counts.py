"""What a lane's latest message really held: elements, density of each segment, tensors that were left out."""

from __future__ import annotations

import torch

from ssfx.compressors import Compressor, Payload
from ssfx.runtime.lane import LaneExecutor
from ssfx.runtime.message import MessageLayout


class SentCounts(LaneExecutor):
    """The counting half of `PackedLane`, which sets the attributes."""

    layout: MessageLayout
    message: torch.Tensor
    compressor: Compressor | None
    packed: list[int]
    """Positions of the compressed segments."""
    payloads: dict[int, Payload]
    _slots: dict[str, tuple[int, int]]

    def sent_elements(self) -> int:
        """Return this rank's count: reported by the compressor where it varies, else fixed by the layout."""
        return sum(n for i, n in enumerate(self.numel) if self.lane.segments[i].dense) + sum(self._sent())

    def density_ratios(self) -> list[float]:
        """Return achieved over target density of each segment that is to send a fraction, but at least one element."""
        densities = [self.lane.segments[i].density for i in self.packed]
        targets = [density * self.numel[i] for i, density in zip(self.packed, densities, strict=True)]
        found = zip(self._sent(), targets, densities, strict=True)
        return [sent / target for sent, target, density in found if density < 1 and target >= 1]

    def _sent(self) -> list[int]:
        """Return the elements of each compressed segment; all counts are read at once, which waits for a GPU once."""
        counts = self.layout.counts.of(self.message).tolist()
        sent = []
        for i in self.packed:
            layout, at = self.layout.layouts[i], self.layout.starts[i].counts
            fixed = layout.values or layout.indices or self.numel[i]
            sent.append(sum(counts[at : at + layout.counts]) if layout.counts else fixed)
        return sent

    def tensors_without_elements(self) -> int | None:
        """Return how many tensors have no index in this rank's latest message."""
        if self.compressor is None or all(
            layout.values >= n for layout, n in zip(self.layout.layouts, self.numel, strict=True)
        ):
            return 0
        if not self.compressor.sparse:
            return None
        missing = 0
        for i in self.packed:
            names = self.lane.segments[i].tensors
            payload = self.payloads[i]
            used = int(payload.counts.sum()) if len(payload.counts) else len(payload.indices)
            if len(names) == 1:
                missing += used == 0 and self.numel[i] > 0
                continue
            ends = torch.tensor([self._slots[name][1] for name in names])
            hit = torch.bucketize(payload.indices[:used].cpu(), ends, right=True).unique()
            filled = sum(self._slots[name][1] > self._slots[name][0] for name in names)
            missing += filled - len(hit)
        return missing
