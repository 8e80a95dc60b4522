"""MSTopK: k elements between two thresholds that a fixed number of counts finds."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from ssfx.compressors.base import Layout, compressors, k_floor
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import kernels
from ssfx.compressors.sparse import Selector
from ssfx.compressors.threshold import reaching, settled, sizes
from ssfx.compressors.topk import TopKOptions, exactly
from ssfx.core.lazy import torch

PROBES = 30
"""Thresholds that are tried."""


class Bracket(NamedTuple):
    """`num_sure` <= k magnitudes reach `sure`, `num_band` >= k reach `band`; float64 [S]."""

    sure: torch.Tensor
    num_sure: torch.Tensor
    band: torch.Tensor
    num_band: torch.Tensor


@compressors.register(TopKOptions())
class MSTopK(Selector):
    """Exact top-k once a probe counts k, which 30 halvings do for continuous data; kept for comparison (D-22)."""

    name = "mstopk"
    summary = "MSTopK: k elements by repeated counting above a threshold"
    source = "Shi et al. 2020; D-22"
    options: TopKOptions

    def layout(self, numel: int, density: float) -> Layout:
        """k = floor(density * numel) indices and values."""
        k = k_floor(numel, density)
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Write what reaches the upper threshold, and from a random place on what reaches only the lower one."""
        kernel = kernels(batch.vector.device)
        bracket = self.bracket(batch, kernel)
        k = sizes(batch)[1]
        if settled(bracket.num_sure < k):
            kernel.select(batch, batch.once("rule", lambda: exactly(batch)), bracket.sure)
            return
        places = bracket.num_band - bracket.num_sure - (k - bracket.num_sure) + 1
        drawn = [batch.key(part.tensor_id) >> 1 for part in batch.parts]  # as signed numbers
        skip = torch.tensor(drawn, device=k.device) % places.long().clamp(min=1)
        kernel.select_band(batch, bracket.sure, bracket.band, skip)

    def bracket(self, batch: Batch, kernel: ModuleType) -> Bracket:
        """Return the two thresholds that enclose the k-th largest magnitude after so many halvings.

        A segment whose count is k is not looked at again: nothing that follows could change it.
        """
        moments = kernel.moments(batch)
        n, k = sizes(batch)
        mean = moments.absolute / n
        low, high = torch.zeros_like(n), torch.ones_like(n)
        sure, num_sure, band, num_band = torch.full_like(n, torch.inf), torch.zeros_like(n), torch.zeros_like(n), n
        for _ in range(PROBES):
            active = num_sure < k
            if settled(active):
                break
            ratio = (low + high) / 2
            level = reaching(mean + ratio * (moments.largest - mean))
            count = kernel.count(batch, torch.where(active, level, torch.nan))
            fits = count <= k
            high, low = torch.where(fits, ratio, high), torch.where(fits, low, ratio)
            better, closer = active & fits & (count > num_sure), active & ~fits & (count < num_band)
            sure, num_sure = torch.where(better, level, sure), torch.where(better, count, num_sure)
            band, num_band = torch.where(closer, level, band), torch.where(closer, count, num_band)
        return Bracket(sure, num_sure, band, num_band)
