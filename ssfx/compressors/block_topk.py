"""Block top-k: whole blocks of neighbours with the largest norms, so that there is one index per block."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_floor
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.sparse import check_value_dtype, predivisor
from ssfx.compressors.topk import exactly
from ssfx.kernels import kernels
from ssfx.lazy import torch


@dataclass(frozen=True)
class BlockTopKOptions:
    """`block` elements are kept or left out together.

    `agreed`: ranks add up their blocks' energies first and then choose the same blocks, whose values the network adds.
    `value_dtype`: float32, float16 or bfloat16.
    """

    block: int = 64
    agreed: bool = False
    value_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_value_dtype(self.value_dtype)
        if self.block < 1:
            raise ValueError(f"block must be at least 1, got {self.block}")


@compressors.register(BlockTopKOptions())
class BlockTopK(Compressor):
    """The K = floor(density * blocks) blocks of largest norm, ties to the lower block; the last one may be shorter.

    Magnitudes whose squares overflow, beyond about 1e18, count as not finite. With `agreed` the payload's first section
    holds energies on the way and, once blocks are chosen, their numbers.
    """

    name = "block_topk"
    summary = "blocks of neighbours with the largest norms, chosen per rank or agreed"
    source = "codecs spec 4.10; Fei et al. 2021 (OmniReduce), Ge et al. 2022 (S2 Reducer)"

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
        self._norms(a, payload.first)
        payload.first.square_()

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """As `compress_batch`, for one tensor."""
        self.compress_batch(Batch.single(a, payload, ctx))

    def compress_batch(self, batch: Batch) -> None:
        """Accumulate, choose the blocks of all segments in one call, and write their numbers and values.

        A block that is not finite has the largest score, so its values tell every receiver.
        """
        batch.accumulate()
        blocks = batch.once("blocks", lambda: _Blocks(batch, self.options))
        scores = blocks.scores
        if not self.options.agreed:
            for part, scored in zip(batch.parts, scores.parts, strict=True):
                self._norms(batch.vector[part.lo : part.hi], scores.vector[scored.lo : scored.hi])
        kernels(batch.vector.device).select(scores, blocks.rule)
        if not batch.vector.numel():
            return
        chosen, not_finite = scores.payload.indices, scores.payload.values * 0  # 0 or NaN
        at = chosen[blocks.slot] * self.options.block + blocks.shift
        values = batch.vector[at.clamp(max=batch.vector.numel() - 1)]
        values = torch.where(at < blocks.end, values, 0).add_(not_finite[blocks.slot])
        values.div_(self._share(batch.world_size))
        batch.payload.values.index_copy_(0, blocks.values_at, values.to(batch.payload.values.dtype))
        _numbers(self.options, batch.payload).index_copy_(0, blocks.numbers_at, chosen - blocks.first)

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

    def _norms(self, a: torch.Tensor, out: torch.Tensor) -> None:
        whole = a.numel() // self.options.block
        blocks = a[: whole * self.options.block].view(whole, self.options.block)
        torch.linalg.vector_norm(blocks, dim=1, out=out[:whole])
        if whole < len(out):
            out[whole] = torch.linalg.vector_norm(a[whole * self.options.block :])


class _Blocks:
    """What depends on nothing but the plan: the scores of a batch's blocks as a batch, and where chosen blocks go.

    Per value on the wire: `slot` among the chosen blocks, `shift` from block * score's position to the element, `end`
    of its segment, place `values_at`. Per chosen block: position `first` of its segment's scores, place `numbers_at`.
    """

    def __init__(self, batch: Batch, options: BlockTopKOptions) -> None:
        parts: list[Part] = []
        slot, shift, end, values_at, first, numbers_at = ([] for _ in range(6))
        lo = slots = 0
        for part in batch.parts:
            blocks, kept = -(-part.numel // options.block), -(-part.layout.values // options.block)
            if options.agreed:
                lo = part.starts.first
            layout, starts = Layout(indices=kept, values=kept), Starts(indices=slots, values=slots)
            parts.append(Part(lo, lo + blocks, layout, part.density, starts=starts, pieces=((lo, lo + blocks),)))
            entry = torch.arange(part.layout.values)
            slot.append(slots + entry // options.block)
            shift.append(entry % options.block + (part.lo - lo * options.block))
            end.append(torch.full_like(entry, part.hi))
            values_at.append(part.starts.values + entry)
            first.append(torch.full((kept,), lo, dtype=torch.int32))
            numbers_at.append(torch.arange(kept) + (part.starts.first if options.agreed else part.starts.indices))
            lo, slots = lo + blocks, slots + kept
        device = batch.vector.device
        self.slot, self.shift, self.end, self.values_at, self.first, self.numbers_at = (
            torch.cat(table).to(device) for table in (slot, shift, end, values_at, first, numbers_at)
        )
        vector = batch.payload.first if options.agreed else torch.empty(lo, device=device)
        chosen = Payload.allocate(Layout(indices=slots, values=slots), device)
        self.scores = Batch(tuple(parts), chosen, {"scores": vector})
        self.rule = exactly(self.scores)


def _numbers(options: BlockTopKOptions, payload: Payload) -> torch.Tensor:
    return payload.first.view(torch.int32) if options.agreed else payload.indices
