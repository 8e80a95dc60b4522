"""Chunk top-m: the m largest magnitudes of every chunk, one pass without a global selection.

Packed, an element takes 14 bits in place of 64: its position in the chunk has 12, its value 2, its sign and which of
two magnitudes of the chunk it has. The two are the means of what is below and above the mean of the chunk's selected
magnitudes: one step of Lloyd's algorithm. A rank's bytes are positions, then values, without gaps between chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ssfx.compressors.base import Compressor, Context, Layout, Payload, compressors, k_ceil
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import kernels
from ssfx.compressors.kernels.reference.blocks import Chunks
from ssfx.compressors.sparse import Selector, ValueDtype
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

if TYPE_CHECKING:
    import torch

MOST = 64
"""Largest m: the choice inside a chunk takes up to m rounds."""


_POSITIONS = 1 << 12
"""Elements of a chunk that 12 bits can tell apart."""


@dataclass(frozen=True)
class ChunkTopMOptions(Bounded):
    """`m` elements of each chunk are kept, so that a chunk has floor(m / density) elements.

    `value_dtype` of the values on the wire. `packed`: 14 bits an element, of chunks of up to 4,096, which
    keep fewer at a low density, one at least.
    """

    m: Annotated[int, f"[1, {MOST}]"] = 4
    value_dtype: ValueDtype = "float32"
    packed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.packed and self.value_dtype != "float32":
            raise ValueError(f"value_dtype={self.value_dtype} is of whole values, and packed ones have 2 bits; drop it")


@compressors.register(ChunkTopMOptions())
class ChunkTopM(Selector):
    """Every part of a tensor is heard: with m of c elements kept, what is left behind is at most 1 - m / c of a chunk.

    What does not fill a chunk at the end keeps as large a fraction, rounded up.
    """

    name = "chunk_topm"
    summary = "the m largest magnitudes of every chunk of m / density elements"
    source = "Chen et al. 2020 (ScaleCom); D-53; packed: Sarfi et al. 2025 (SparseLoCo)"
    options: ChunkTopMOptions

    def __init__(self, options: ChunkTopMOptions) -> None:
        super().__init__(options)
        self.sparse = not options.packed

    def layout(self, numel: int, density: float) -> Layout:
        """m indices and values per chunk; packed, two magnitudes of every chunk, and bytes."""
        chunks = self._chunks(numel, density)
        k = chunks.kept
        if self.options.packed:
            rows = chunks.number + bool(chunks.keep_rest)
            return Layout(scales=2 * rows, code_bytes=_bytes(12 * k) + _bytes(2 * k), packed=k)
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Accumulate and write each chunk's m largest magnitudes, ties to the lower position, in ascending order."""
        if self.options.packed:
            Compressor.compress_batch(self, batch)
            return
        chunks = batch.once("chunks", lambda: [self._chunks(part.numel, part.density) for part in batch.parts])
        kernels(batch.vector.device).largest_of_chunks(batch, chunks)

    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Write the selected elements of one segment."""
        if not self.options.packed:
            super().compress(a, payload, ctx)
            return
        cut = self._chunks(a.numel(), ctx.density)
        chosen = Payload.allocate(Layout(indices=cut.kept, values=cut.kept), a.device)
        kernels(a.device).largest_of_chunks(Batch.single(a, chosen, ctx), [cut])
        magnitudes, of = chosen.values.abs(), _chunk_of(cut, a.device)
        above = magnitudes > _means(magnitudes, of, payload.scales.numel() // 2)[of]
        # Of a chunk in which no magnitude is above the mean, all are equal: the other mean is not read.
        payload.scales.copy_(_means(magnitudes, 2 * of + above, payload.scales.numel()))
        signs = (chosen.values < 0).to(torch.uint8)
        positions = (chosen.indices - cut.size * of).to(torch.int32)
        at = _bytes(12 * cut.kept)
        payload.codes[:at].copy_(_packed_12(positions))
        payload.codes[at:].copy_(_packed_2(2 * signs + above))

    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * values at the payload's positions."""
        if not self.options.packed:
            super().decompress_add(payload, out, ctx, scale)
            return
        cut = self._chunks(out.numel(), ctx.density)
        of, at = _chunk_of(cut, out.device), _bytes(12 * cut.kept)
        positions = _unpacked_12(payload.codes[:at], cut.kept) + cut.size * of
        codes = _unpacked_2(payload.codes[at:], cut.kept)
        magnitudes = payload.scales[2 * of + (codes & 1)]
        out.index_add_(0, positions, torch.where(codes > 1, -magnitudes, magnitudes), alpha=scale)

    def _chunks(self, numel: int, density: float) -> Chunks:
        size = int(self.options.m / density + 1e-6)
        m = self.options.m
        if self.options.packed and size > _POSITIONS:
            size, m = _POSITIONS, max(1, int(_POSITIONS * density + 1e-6))
        rest = numel % size
        return Chunks(numel // size, size, m, k_ceil(rest, density))


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _chunk_of(cut: Chunks, device: torch.device) -> torch.Tensor:
    """Return the number of the chunk of every selected element (int64)."""
    whole = torch.arange(cut.number, device=device).repeat_interleave(cut.keep)
    return torch.cat([whole, whole.new_full((cut.keep_rest,), cut.number)])


def _means(numbers: torch.Tensor, of: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of the numbers of each of `count` groups; 0 of an empty one."""
    total = numbers.new_zeros(count).index_add_(0, of, numbers)
    return total / torch.bincount(of, minlength=count).clamp_(min=1)


def _packed_12(positions: torch.Tensor) -> torch.Tensor:
    """Return the bytes of numbers of 12 bits: three for two of them, and two for a last one alone."""
    pairs = torch.nn.functional.pad(positions, (0, len(positions) % 2)).view(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    found = torch.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1)
    return found.to(torch.uint8).view(-1)[: _bytes(12 * len(positions))]


def _unpacked_12(codes: torch.Tensor, count: int) -> torch.Tensor:
    threes = torch.nn.functional.pad(codes, (0, -len(codes) % 3)).view(-1, 3).long()
    first = threes[:, 0] << 4 | threes[:, 1] >> 4
    second = (threes[:, 1] & 15) << 8 | threes[:, 2]
    return torch.stack([first, second], 1).view(-1)[:count]


_SHIFTS = (6, 4, 2, 0)


def _packed_2(codes: torch.Tensor) -> torch.Tensor:
    """Return the bytes of numbers of 2 bits, the first in the highest bits."""
    fours = torch.nn.functional.pad(codes, (0, -len(codes) % 4)).view(-1, 4)
    return (fours << fours.new_tensor(_SHIFTS)).sum(1, dtype=torch.uint8)


def _unpacked_2(codes: torch.Tensor, count: int) -> torch.Tensor:
    return (codes.long()[:, None] >> codes.new_tensor(_SHIFTS).long() & 3).view(-1)[:count]
