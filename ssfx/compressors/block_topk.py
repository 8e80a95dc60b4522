"""Block top-k: whole blocks of neighbours with the largest norms, so that there is one index per block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels import kernels
from ssfx.compressors.kernels.narrow import round_values
from ssfx.compressors.sparse import ValueDtype, predivisor
from ssfx.compressors.topk import exactly
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded


@dataclass(frozen=True)
class BlockTopKOptions(Bounded):
    """`block` elements are kept or left out together.

    `agreed`: ranks add up their blocks' energies first and then choose the same blocks, whose values the network adds.
    `value_dtype` of the values on the wire.
    """

    block: Annotated[int, 1] = 64
    agreed: bool = False
    value_dtype: ValueDtype = "float32"


@compressors.register(BlockTopKOptions())
class BlockTopK(Compressor):
    """The K = floor(density * blocks) blocks of largest norm, ties to the lower block; the last one may be shorter.

    With `agreed`, the payload's first section holds energies on the way and, once blocks are chosen, their numbers;
    magnitudes beyond about 1e18, whose squares overflow, count as not finite.
    """

    name = "block_topk"
    summary = "blocks of neighbours with the largest norms, chosen per rank or agreed"
    source = "Fei et al. 2021 (OmniReduce), Ge et al. 2022 (S2 Reducer); D-53"

    def __init__(self, options: BlockTopKOptions) -> None:
        self.options = options
        self.additive = options.agreed
        self.rounds = 2 if options.agreed else 1

    def layout(self, numel: int, density: float) -> Layout:
        """K block numbers and K * block values, or one energy per block in their place."""
        blocks = -(-numel // self.options.block)
        kept = k_floor(blocks, density)
        values = min(numel, kept * self.options.block)  # less only if all blocks are kept
        if self.options.agreed:
            return Layout(first=blocks, values=values, value_dtype=self.options.value_dtype)
        return Layout(indices=kept, values=values, value_dtype=self.options.value_dtype)

    def propose(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write every block's sum of squares."""
        rows = np.array([(0, a.numel(), 0, 0, 0, 0, 0)])
        kernels(a.device).block_norms(a, rows, self.options.block, payload.first)
        payload.first.square_()

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """As `compress_batch`, for one tensor."""
        self.compress_batch(Batch.single(a, payload, ctx))

    def compress_batch(self, batch: Batch) -> None:
        """Accumulate, choose the blocks of all segments in one call, and write their numbers and values.

        A block that is not finite has the largest score, so its values tell every receiver.
        """
        batch.accumulate()
        choice = batch.once("choice", lambda: _Choice(batch, self.options))
        scores, block, use = choice.scores, self.options.block, kernels(batch.vector.device)
        if not self.options.agreed:
            use.block_norms(batch.vector, choice.rows, block, scores.vector)
        use.select(scores, choice.rule)
        values = batch.payload.values
        exact = values if values.dtype == torch.float32 else torch.empty_like(values, dtype=torch.float32)
        numbers = _numbers(self.options, batch.payload)
        use.take_blocks(batch.vector, choice.rows, block, scores.payload.indices, scores.payload.values, exact, numbers)
        if exact is not values:
            share = self._share(batch.world_size)
            round_values(batch, exact.div_(share), share)

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values to the elements of the blocks; what pads the last block is zero."""
        block = self.options.block
        kept = -(-len(payload.values) // block)
        numbers = _numbers(self.options, payload)[:kept].long()
        at = (numbers[:, None] * block + torch.arange(block, device=out.device)).view(-1)[: len(payload.values)]
        share = self._share(ctx.world_size)
        out.index_add_(0, at.clamp_(max=out.numel() - 1), payload.values.to(out.dtype), alpha=scale * share)

    def _share(self, world_size: int) -> int:
        return predivisor(self.options.value_dtype, world_size) if self.options.agreed else 1


class _Choice:
    """What depends on nothing but the plan: a batch of the blocks' scores, its rule, and `rows` for the kernels.

    With `agreed` the scores are the payload's first section, where the ranks have added them up.
    """

    def __init__(self, batch: Batch, options: BlockTopKOptions) -> None:
        parts, rows = [], []
        lo = slots = 0
        for part in batch.parts:
            blocks, kept = -(-part.numel // options.block), -(-part.layout.values // options.block)
            if options.agreed:
                lo = part.starts.first
            layout, starts = Layout(indices=kept, values=kept), Starts(indices=slots, values=slots)
            parts.append(Part(lo, lo + blocks, layout, part.density, starts=starts, pieces=((lo, lo + blocks),)))
            numbers_at = part.starts.first if options.agreed else part.starts.indices
            rows.append((part.lo, part.hi, lo, kept, slots, part.starts.values, numbers_at))
            lo, slots = lo + blocks, slots + kept
        device = batch.vector.device
        vector = batch.payload.first if options.agreed else torch.empty(lo, dtype=torch.float32, device=device)
        chosen = Payload.allocate(Layout(indices=slots, values=slots), device)
        self.rows = np.array(rows)
        self.scores = Batch(tuple(parts), chosen, {"scores": vector})
        self.rule = exactly(self.scores)


def _numbers(options: BlockTopKOptions, payload: Payload) -> torch.Tensor:
    return payload.first.view(torch.int32) if options.agreed else payload.indices
