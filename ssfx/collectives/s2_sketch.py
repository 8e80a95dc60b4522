"""S2 Reducer: sparse blocks made addable, as a count sketch of their elements and a bitmap of their numbers.

A sketch is float32 [cols]: every element is added, with a random sign, to one of its buckets; what a bucket holds,
times the sign, estimates each of its elements. Two hash families over element numbers choose bucket and sign. Sketches
of one family add up.

Source: Charikar et al. 2002; D-34.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.pairs import poisoned
from ssfx.collectives.primitives import traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.compressors.kernels import kernels
from ssfx.compressors.sparse import top_k
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.wire.batch import key, splitmix64

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


PRIME = 2**31 - 1
"""Products of two numbers below it fit in int64; element numbers are smaller too."""


@dataclass(frozen=True, slots=True)
class Hashes:
    """Functions of a sketch: bucket ((a i + b) mod PRIME) mod cols, sign from the cubic polynomial `q`, highest first.

    Buckets are pairwise independent, signs 4-wise.
    """

    a: int
    b: int
    q: tuple[int, int, int, int]

    def buckets(self, at: torch.Tensor, cols: int) -> torch.Tensor:
        """Return the bucket (int64) of each element number in `at` (int64)."""
        return (at * self.a + self.b) % PRIME % cols

    def signs(self, at: torch.Tensor) -> torch.Tensor:
        """Return 1 or -1 (float32) for each element number in `at` (int64)."""
        value = torch.full_like(at, self.q[0])
        for coefficient in self.q[1:]:
            value = (value * at + coefficient) % PRIME
        return (1 - 2 * (value % 2)).to(torch.float32)


def draw(seed: int, buffer: int, step: int) -> Hashes:
    """Return the hash functions of one exchange: the same on every rank, others for every buffer and step."""
    base = key(seed, buffer, step)

    def number(place: int, low: int = 0) -> int:
        return low + splitmix64(base ^ place) % (PRIME - low)

    return Hashes(number(0, 1), number(1), (number(2), number(3), number(4), number(5)))


def insert(sketch: torch.Tensor, hashes: Hashes, at: torch.Tensor, values: torch.Tensor) -> None:
    """Add elements number `at` (int64) with their values (float32) to `sketch`."""
    sketch.index_add_(0, hashes.buckets(at, len(sketch)), hashes.signs(at) * values)


def estimate(sketch: torch.Tensor, hashes: Hashes, at: torch.Tensor) -> torch.Tensor:
    """Return what a sketch says about elements `at`."""
    return hashes.signs(at) * sketch[hashes.buckets(at, len(sketch))]


@dataclass(frozen=True)
class S2Options(Bounded):
    """`block` elements are sent together; the sketch has `ratio` times as many buckets as one rank sends elements."""

    block: Annotated[int, 1] = 64
    ratio: Annotated[float, "(0, inf)"] = 0.5


@collectives.register(S2Options())
class S2Sketch(Reducer):
    """Every rank sends its K = ceil(kept / block) blocks of largest norm; the sum is read back at their union.

    The sum is an unbiased estimate with a noise energy of about 1 / ratio times that of what was sent, more the less
    ranks agree on blocks. Its error goes into no memory: fed back, it would grow below ratio 1 (D-34). A vector keeps
    what its rank did not send, so gradients equal what was sent, summed exactly, plus what is kept.
    """

    name = "s2_sketch"
    summary = "all-reduce of a count sketch of the largest blocks, and of a bitmap of them; the sum is an estimate"
    source = "Ge et al. 2022 (S2 Reducer), Algorithm 1; D-34"
    selects = True
    rules = ("block_topk",)
    options: S2Options

    def shape(self, numel: int, kept: int) -> tuple[int, int, int]:
        """Return blocks in the vector, blocks that a rank sends, and buckets of the sketch."""
        blocks, sent = -(-numel // self.options.block), -(-kept // self.options.block)
        sent = min(sent, blocks)
        inserted = min(numel, sent * self.options.block)
        return blocks, sent, max(1, math.floor(self.options.ratio * inserted + 1e-6))

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return both sums; their sizes depend on nothing but the plan."""
        blocks, _, cols = self.shape(load.numel, load.kept)
        return Phase("all_reduce", 4 * cols), Phase("all_reduce", blocks)

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Sum what the blocks hold, with hash functions of this step's own.

        A `Reduction` does not say which buffer it is; its size stands for its name.
        """
        return self.reduce_with(draw(work.seed, work.vector.numel(), work.step), work, comm)

    def reduce_with(self, hashes: Hashes, work: Reduction, comm: Comm) -> Reduced:
        """As `reduce`, with hash functions that the caller chose, equal on all ranks."""
        vector, p, rank = work.vector, comm.world_size, comm.rank
        blocks, sent, cols = self.shape(vector.numel(), work.kept)
        used = traffic("all_reduce", 4 * cols, p, rank, item_bytes=4)
        used += traffic("all_reduce", blocks, p, rank)
        sketch = torch.zeros(cols, dtype=torch.float32, device=vector.device)
        bitmap = torch.zeros(blocks, dtype=torch.uint8, device=vector.device)
        own = torch.zeros(0, dtype=torch.int64, device=vector.device)
        if work.bad:
            sketch.fill_(float("nan"))  # the flag: it poisons the sum on every rank
        else:
            # Algorithm 1: the K blocks of largest norm, ties to the lower one, without blocks of zeros.
            norms = torch.empty(blocks, dtype=torch.float32, device=vector.device)
            rows = np.array([(0, vector.numel(), 0, 0, 0, 0, 0)])
            kernels(vector.device).block_norms(vector, rows, self.options.block, norms)
            largest = top_k(norms, sent)
            largest = largest[norms[largest] > 0]
            own = self._elements(largest, vector.numel())
            # Their bits and their sketch; what is sent leaves the memory.
            bitmap[largest] = 1
            insert(sketch, hashes, own, vector[own])
            vector[own] = 0
        # Both add up: sketches are linear, and a maximum unites bitmaps.
        pending = comm.all_reduce(sketch), comm.all_reduce(bitmap, op="max")
        for exchange in pending:
            exchange.wait()
        if not torch.isfinite(sketch.sum()) and not torch.isfinite(sketch).all():
            return poisoned(vector, used)
        # The query: s(i) S[h(i)] for every element of the union.
        union = self._elements(bitmap.nonzero().view(-1), vector.numel())
        return Reduced(estimate(sketch, hashes, union), union, own.numel(), used)

    def _elements(self, numbers: torch.Tensor, numel: int) -> torch.Tensor:
        """Return the element numbers of blocks, ascending; the last block of the vector may be short."""
        block: int = self.options.block
        at = (numbers[:, None] * block + torch.arange(block, device=numbers.device)).view(-1)
        return at[at < numel]
