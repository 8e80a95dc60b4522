"""RedSync: a threshold between the mean and the largest magnitude, by binary search or by trimming; and quantised.

Policy of sizes: a batch's small segments are sent as they are, the others go to two compressors. The layout of a
segment tells which it is. The paper sends small tensors in an all-reduce of their own; here they travel beside the
others, without indices, which costs the same for few ranks. Source: D-22.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels import Bound, Moments, Rule, kernels
from ssfx.compressors.kernels.narrow import narrow
from ssfx.compressors.threshold import ThresholdOptions, ThresholdSelector, above, settled, sizes
from ssfx.compressors.topk import exactly
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.compressors.base import Compressor


MODES = ("search", "trimmed", "by_size")
_THRESHOLD = "threshold"
_DENSE_AT_MOST = 4 << 20  # planners look at a segment of this size to see whether the density matters


@dataclass(frozen=True)
class RedSyncOptions(ThresholdOptions):
    """`mode` search: halve an interval until the count is between k and 2 k. trimmed: lower the threshold until k pass.

    by_size is the paper's policy: segments below `dense_below_bytes` (of float32) are sent as they are, those up to
    `trimmed_up_to_bytes` trimmed, larger ones searched. A search is done every `interval` steps, its threshold is used
    again in between; the paper's interval is 5. `resolution`: where the search stops, and the step of trimming, as a
    fraction of the way from mean to largest. trimmed sends exactly the k largest, so `capacity` belongs to searches.
    """

    mode: Annotated[str, MODES] = "search"
    resolution: Annotated[float, "[0.01, 1)"] = 0.2
    interval: Annotated[int, 1] = 1
    dense_below_bytes: int = 128 << 10
    trimmed_up_to_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dense_below_bytes <= min(self.trimmed_up_to_bytes, _DENSE_AT_MOST):
            raise ValueError(f"dense_below_bytes must be from 0 to trimmed_up_to_bytes and at most {_DENSE_AT_MOST}")
        if self.mode == "trimmed" and (self.capacity, self.interval) != (1.3, 1):
            raise ValueError(
                "capacity and interval have no effect in mode=trimmed, which sends exactly k elements; use mode=search"
            )
        if self.mode != "by_size" and (self.dense_below_bytes, self.trimmed_up_to_bytes) != (128 << 10, 4 << 20):
            raise ValueError("dense_below_bytes and trimmed_up_to_bytes have no effect without mode=by_size")


@compressors.register(RedSyncOptions())
class RedSync(ThresholdSelector):
    """With the default resolution only three probes, so the count of a search may be far off (D-22).

    Small segments in mode=by_size have no indices, so positions on the wire count from each segment's own start.
    """

    name = "redsync"
    summary = "RedSync: threshold by binary search between mean and maximum, or trimmed exact top-k"
    source = "Fang et al. 2019; D-22"
    options: RedSyncOptions

    def __init__(self, options: RedSyncOptions) -> None:
        super().__init__(options)
        self.sparse = options.mode != "by_size"
        if options.mode == "by_size":
            plain = replace(options, dense_below_bytes=128 << 10, trimmed_up_to_bytes=4 << 20)
            self.searching = RedSync(replace(plain, mode="search"))
            self.trimming = RedSync(replace(plain, mode="trimmed", capacity=1.3, interval=1))

    def layout(self, numel: int, density: float) -> Layout:
        """As every threshold codec; trimmed: k = floor(density * numel) indices and values; dense: values alone."""
        options = self.options
        if options.mode == "search":
            return super().layout(numel, density)
        if options.mode == "trimmed":
            k = k_floor(numel, density)
            return Layout(indices=k, values=k, value_dtype=options.value_dtype)
        if 4 * numel < options.dense_below_bytes:
            return Layout(values=numel, value_dtype=options.value_dtype)
        by = self.trimming if 4 * numel <= options.trimmed_up_to_bytes else self.searching
        return by.layout(numel, density)

    def state_shapes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The threshold of the latest search, where it is used again."""
        return {_THRESHOLD: (1,)} if self.options.interval > 1 else {}

    def compress_batch(self, batch: Batch) -> None:
        """Write the selected elements in ascending order of position."""
        if self.options.mode == "search":
            super().compress_batch(batch)
        elif self.options.mode == "trimmed":
            kernel = kernels(batch.vector.device)
            kernel.select(batch, batch.once("rule", lambda: exactly(batch)), self.thresholds(batch, kernel))
        else:
            by_layout(batch, self.trimming, self.searching)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at the payload's positions, or everywhere if it has none."""
        if len(payload.indices):
            super().decompress_add(payload, out, ctx, scale)
        else:
            out.add_(payload.values, alpha=scale)

    def thresholds(self, batch: Batch, kernel: ModuleType) -> torch.Tensor:
        """Magnitudes above mean + ratio * (largest - mean), for the ratio that search or trimming ends with."""
        if self.options.mode == "trimmed":
            return self._trim(batch, kernel, kernel.moments(batch))
        if self.options.interval == 1:
            return self._search(batch, kernel, kernel.moments(batch))
        kept = [state[_THRESHOLD] for state in batch.states]
        if batch.step % self.options.interval:
            return torch.cat(kept).double()  # 0 before the first search: everything passes, the capacity is filled
        found = self._search(batch, kernel, kernel.moments(batch))
        torch._foreach_copy_(kept, list(found.float().view(-1, 1)))
        return found

    def _search(self, batch: Batch, kernel: ModuleType, moments: Moments) -> torch.Tensor:
        n, k = sizes(batch)
        low, high = torch.zeros_like(n), torch.ones_like(n)
        ratio, active = (low + high) / 2, k < n
        for _ in range(_halvings(self.options.resolution) - 1):  # the last probe is not followed by another
            if settled(active):
                break
            level = above(level_at(moments, n, ratio))
            count = kernel.count(batch, torch.where(active, level, torch.nan))
            active = active & ~((k < count) & (count < 2 * k))
            few = count < k / 2
            high = torch.where(active & few, ratio, high)
            low = torch.where(active & ~few, ratio, low)
            ratio = (low + high) / 2
        return above(level_at(moments, n, ratio))

    def _trim(self, batch: Batch, kernel: ModuleType, moments: Moments) -> torch.Tensor:
        n, k = sizes(batch)
        found, active, ratio = torch.zeros_like(n), k < n, 1 - self.options.resolution
        while ratio >= 0 and not settled(active):
            level = above(level_at(moments, n, torch.full_like(n, ratio)))
            enough = active & (kernel.count(batch, torch.where(active, level, torch.nan)) >= k)
            found = torch.where(enough, level, found)
            active = active & ~enough
            ratio -= self.options.resolution
        return found


def level_at(moments: Moments, n: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return what lies at `ratio` of the way from the mean magnitude to the largest; float64 [S]."""
    mean = moments.absolute / n
    return mean + ratio * (moments.largest - mean)


def _halvings(resolution: float) -> int:
    """Return how often an interval of length 1 is halved while it is longer than `resolution`."""
    return math.ceil(-math.log2(resolution))


def by_layout(batch: Batch, exact: Compressor, counted: Compressor) -> None:
    """Accumulate, and fill every segment's payload: of those with a count by `counted`, of those without by `exact`.

    Positions count from each segment's own start.
    """
    batch.accumulate()
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


PADDING = -1
"""An unused slot: position 0 would be given the common value."""


@compressors.register()
class RedSyncQuant(Compressor):
    """The projection of a onto the indicator of its k largest elements of one sign: |a - C|^2 = |a|^2 - k v^2."""

    name = "redsync_quant"
    summary = "RedSync quantised: k positions of the sign whose turn it is, and their mean"
    source = "Fang et al. 2019; D-22"

    def layout(self, numel: int, density: float) -> Layout:
        """One scale and k = floor(density * numel) indices."""
        return Layout(scales=1 if numel else 0, indices=k_floor(numel, density))

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write positions and mean of the k largest positive elements, of negative ones in odd steps."""
        k, sign = payload.indices.numel(), -1 if ctx.step % 2 else 1
        chosen = Payload.allocate(Layout(indices=k, values=k), a.device)
        one_sign = Batch.single((a * sign).clamp_(min=0), chosen, ctx)
        kernels(a.device).select(one_sign, Rule((Bound(k, k, k),)))
        used = chosen.values > 0
        payload.scales.copy_(sign * chosen.values.double().sum() / used.sum().clamp(min=1))
        payload.indices.copy_(torch.where(used, chosen.indices, PADDING))

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * mean at the payload's positions."""
        used = payload.indices != PADDING
        values = torch.where(used, payload.scales.to(out.dtype), 0)
        out.index_add_(0, payload.indices.clamp(min=0), values, alpha=scale)
