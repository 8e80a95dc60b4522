"""A sum that stays quantised on its way: every rank adds up one part of the vector and sends everybody its sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.primitives import split_sizes, split_starts, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.compressors.base import Compressor, Context, Layout, Payload
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


@dataclass(frozen=True)
class QuantizedAllReduceOptions:
    """No options: bits and blocks are the compressor's."""


@collectives.register(QuantizedAllReduceOptions())
class QuantizedAllReduce(Reducer):
    """Scatter, reduce, gather: what a gather of quantised vectors is to many ranks, without growing with them.

    The vector is cut into a part for every rank. Each rank quantises all parts and sends each to its owner, who adds
    them up in float32 in the order of ranks, quantises the sum, and sends it to all. So an element is quantised twice,
    and a rank sends twice what it quantises, whatever the number of ranks. What either quantisation leaves out stays
    with the rank that left it out. Numbers that are not finite travel as scales that are not, so nobody waits for them.
    """

    name = "quantized_all_reduce"
    summary = "all-to-all of quantised parts, sums in float32, all-gather of the quantised sums"
    source = "Markov et al. 2022 (CGX), Scatter-Reduce-Allgather; Wang et al. 2023 (ZeRO++), qgZ"
    selects = True
    quantizes = True
    rules = ("qsgd", "fp8")
    options: QuantizedAllReduceOptions

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return two exchanges of the quantised vector, and the sum between them."""
        part = load.numel / load.world_size
        return (
            Phase("all_to_all", load.nbytes),
            Phase("decode", part),
            Phase("encode", part),
            Phase("all_gather", load.nbytes / load.world_size),
        )

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Return the quantised sum of the whole vector; what is left in `vector` is 0 unless `keeps`."""
        assert work.compressor is not None
        compressor, vector, p, rank = work.compressor, work.vector, comm.world_size, comm.rank
        sizes, starts = split_sizes(vector.numel(), p), split_starts(vector.numel(), p)
        wire = _Wire(compressor, sizes[0])

        def context(tensor_id: int, sender: int) -> Context:
            return Context(work.step, tensor_id, sender, p, 1.0, work.seed)

        parts = [wire.part(starts[r], sizes[r], 2 * p * work.lane + r, r) for r in range(p)]
        leaving = wire.rows(p, vector.device)
        _compressed(compressor, leaving, vector, parts, work, comm)
        if work.keeps:
            for row, part in zip(leaving, parts, strict=True):
                own = vector[part.lo : part.hi]
                compressor.decompress_add(wire.payload(row, part.numel), own, context(part.tensor_id, rank), -1.0)
        arriving = comm.all_to_all(leaving).wait()
        total = torch.zeros(sizes[rank], dtype=torch.float32, device=vector.device)
        for sender, row in enumerate(arriving):
            compressor.decompress_add(wire.payload(row, sizes[rank]), total, context(parts[rank].tensor_id, sender))

        sums = wire.part(0, sizes[rank], (work.lane * 2 + 1) * p + rank, 0)
        record = wire.rows(1, vector.device)
        _compressed(compressor, record, total, [sums], work, comm)
        if work.keeps:
            compressor.decompress_add(wire.payload(record[0], sizes[rank]), total, context(sums.tensor_id, rank), -1.0)
            vector[starts[rank] : starts[rank + 1]] += total
        result = torch.zeros_like(vector)
        for owner, row in enumerate(comm.all_gather(record[0]).wait()):
            ctx = context((work.lane * 2 + 1) * p + owner, owner)
            compressor.decompress_add(wire.payload(row, sizes[owner]), result[starts[owner] : starts[owner + 1]], ctx)
        used = traffic("all_to_all", p * wire.nbytes, p, rank) + traffic("all_gather", wire.nbytes, p, rank)
        return Reduced(result, None, vector.numel(), used)


class _Wire:
    """How a part travels: scales, then codes, in rows of the same length for all."""

    def __init__(self, compressor: Compressor, most: int) -> None:
        self._compressor = compressor
        self._scale_bytes = 4 * compressor.layout(most, 1.0).scales
        self.nbytes = self._scale_bytes + 4 * math.ceil(compressor.layout(most, 1.0).code_bytes / 4)

    def rows(self, count: int, device: torch.device) -> torch.Tensor:
        """Return room for so many parts."""
        return torch.zeros(count, self.nbytes, dtype=torch.uint8, device=device)

    def part(self, lo: int, numel: int, tensor_id: int, row: int) -> Part:
        """Return the segment of `numel` elements from `lo`, which is written to a row."""
        start = row * self.nbytes
        at = Starts(scales=start // 4, codes=start + self._scale_bytes)
        return Part(lo, lo + numel, self._layout(numel), 1.0, tensor_id, at, ((lo, lo + numel),))

    def payload(self, row: torch.Tensor, numel: int) -> Payload:
        """Return the views of a row that holds so many elements."""
        layout = self._layout(numel)
        return _payload(row[: 4 * layout.scales].view(torch.float32), row[self._scale_bytes :][: layout.code_bytes])

    def _layout(self, numel: int) -> Layout:
        return self._compressor.layout(numel, 1.0) if numel else Layout()


def _payload(scales: torch.Tensor, codes: torch.Tensor) -> Payload:
    return replace(Payload.allocate(Layout(), codes.device), scales=scales, codes=codes)


def _compressed(
    compressor: Compressor, rows: torch.Tensor, vector: torch.Tensor, parts: list[Part], work: Reduction, comm: Comm
) -> None:
    """Fill `rows` with the parts of a vector in one call."""
    payload = _payload(rows.view(-1).view(torch.float32), rows.view(-1))
    batch = Batch(
        tuple(parts), payload, {"a": vector}, rank=comm.rank, world_size=comm.world_size, seed=work.seed, step=work.step
    )
    compressor.compress_batch(batch)
