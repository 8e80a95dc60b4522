"""Chunk top-m: the m largest magnitudes of every chunk, one pass without a global selection."""

from dataclasses import dataclass
from typing import Annotated

from ssfx.compressors.base import Layout, compressors, k_ceil
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import kernels
from ssfx.compressors.kernels.reference.blocks import Chunks
from ssfx.compressors.sparse import Selector, ValueDtype
from ssfx.core.spec import Bounded

MOST = 64
"""Largest m: the choice inside a chunk takes up to m rounds."""


@dataclass(frozen=True)
class ChunkTopMOptions(Bounded):
    """`m` elements of each chunk are kept, so that a chunk has floor(m / density) elements.

    `value_dtype` of the values on the wire.
    """

    m: Annotated[int, f"[1, {MOST}]"] = 4
    value_dtype: ValueDtype = "float32"


@compressors.register(ChunkTopMOptions())
class ChunkTopM(Selector):
    """Every part of a tensor is heard: with m of c elements kept, what is left behind is at most 1 - m / c of a chunk.

    What does not fill a chunk at the end keeps as large a fraction, rounded up.
    """

    name = "chunk_topm"
    summary = "the m largest magnitudes of every chunk of m / density elements"
    source = "Chen et al. 2020 (ScaleCom); D-53"
    options: ChunkTopMOptions

    def layout(self, numel: int, density: float) -> Layout:
        """m indices and values per chunk."""
        k = self._chunks(numel, density).kept
        return Layout(indices=k, values=k, value_dtype=self.options.value_dtype)

    def compress_batch(self, batch: Batch) -> None:
        """Accumulate and write each chunk's m largest magnitudes, ties to the lower position, in ascending order."""
        chunks = batch.once("chunks", lambda: [self._chunks(part.numel, part.density) for part in batch.parts])
        kernels(batch.vector.device).largest_of_chunks(batch, chunks)

    def _chunks(self, numel: int, density: float) -> Chunks:
        size = int(self.options.m / density + 1e-6)
        rest = numel % size
        return Chunks(numel // size, size, self.options.m, k_ceil(rest, density))
