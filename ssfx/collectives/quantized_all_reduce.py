"""A sum that stays quantised on its way: every rank adds up one part of the vector and sends everybody its sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Load, Phase, collectives
from ssfx.collectives.hierarchical import node_size, sum_of_part
from ssfx.collectives.primitives import Traffic, split_sizes, split_starts, to_peers, traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.compressors.base import Compressor, Context, Layout, Payload
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels import Rows, quantizers
from ssfx.compressors.quantizer import coding_of
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded
from ssfx.wire.payload import VALUE_BYTES

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


@dataclass(frozen=True)
class QuantizedAllReduceOptions(Bounded):
    """`ranks_per_node`: so many neighbours by rank share a node, and sum in float32 there first; 1: none do."""

    ranks_per_node: Annotated[int, 1] = 1


@collectives.register(QuantizedAllReduceOptions())
class QuantizedAllReduce(Reducer):
    """Scatter, reduce, gather: what a gather of quantised vectors is to many ranks, without growing with them.

    Inside a node every rank sums a shard in float32, if nodes are known. The shard is cut into a part for each rank of
    equal local index. All parts are quantised and sent to their owners, who add them up in float32 in the order of
    ranks, quantise the sums, and send them to all. So an element is quantised twice, and twice the quantised vector
    leaves a node, for any number of nodes. What a quantisation leaves out stays with the rank that left it out.
    Of 16-bit compressors an element has two roundings as well, each by at most half a unit in the last place; averages
    travel in place of sums, which float16 may not hold. Numbers that are not finite travel as scales or values that
    are not, so no rank waits for them.
    """

    name = "quantized_all_reduce"
    summary = "all-to-all of quantised parts, sums in float32, all-gather of the quantised sums"
    source = "Markov et al. 2022 (CGX), Scatter-Reduce-Allgather; Wang et al. 2023 (ZeRO++), qgZ"
    selects = True
    quantizes = True
    rules = ("qsgd", "fp16", "bf16", "fp8", "onebit")
    options: QuantizedAllReduceOptions

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the sum inside a node, two exchanges of the quantised shard, the sum between them, and the way back.

        Quantising the vector and decoding the sum are the lane's.
        """
        p, size = load.world_size, node_size(self.options.ranks_per_node, load.world_size)
        nodes, shard_bytes = p // size, load.nbytes / size
        on_the_way = (Phase("decode", load.numel / size / p), Phase("encode", load.numel / p))
        if size == 1:
            return (Phase("all_to_all", load.nbytes), *on_the_way, Phase("all_gather", load.nbytes / p))
        across = Phase("send", shard_bytes / nodes, times=nodes - 1)
        inside = (Phase("send", 4 * load.numel / size, True, size - 1), Phase("send", shard_bytes, True, size - 1))
        return (inside[0], *((across, *on_the_way, across) if nodes > 1 else on_the_way), inside[1])

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Return the quantised sum of the whole vector; what is left in `vector` means nothing unless `keeps`."""
        assert work.compressor is not None
        vector, p = work.vector, comm.world_size
        size = node_size(self.options.ranks_per_node, p)
        node, local = divmod(comm.rank, size)
        inside, across = range(node * size, (node + 1) * size), range(local, p, size)
        shards, sizes = split_starts(vector.numel(), size), split_sizes(vector.numel(), size)
        own = slice(shards[local], shards[local + 1])
        if size > 1:
            shard = sum_of_part(comm, inside, vector)
            vector.zero_()  # what the node's other ranks sum is theirs
            vector[own] = shard
        records = _Parts(work, comm, across, local).summed(vector[own])
        row_bytes = [_Wire(work.compressor, numel, len(across)).nbytes for numel in sizes]
        rows = {
            rank: records.new_empty(len(across), nbytes)
            for rank, nbytes in zip(inside, row_bytes, strict=True)
            if rank != comm.rank
        }
        if size > 1:
            comm.swap(dict.fromkeys(rows, records), rows).wait()
        rows[comm.rank] = records
        result = torch.empty_like(vector)
        for rank, row in sorted(rows.items()):
            at = rank % size
            _Parts(work, comm, range(at, p, size), at).decode(row, result[shards[at] : shards[at + 1]])
        return Reduced(result, None, vector.numel(), self._used(sizes, row_bytes[local], p, comm.rank))

    @staticmethod
    def _used(sizes: Sequence[int], row_bytes: int, world_size: int, rank: int) -> Traffic:
        """Return what a rank sends whose parts are rows of so many bytes; `sizes` are those of a node's shards."""
        nodes, local = world_size // len(sizes), rank % len(sizes)
        if len(sizes) == 1:
            exchanged = traffic("all_to_all", world_size * row_bytes, world_size, rank)
            return exchanged + traffic("all_gather", row_bytes, world_size, rank)
        across = to_peers([row_bytes] * nodes, rank // len(sizes))
        inside = to_peers([4 * numel for numel in sizes], local) + to_peers([nodes * row_bytes] * len(sizes), local)
        return across + across + inside


class _Parts:
    """The shard of one local index, in a part for each of the `ranks` that have it."""

    def __init__(self, work: Reduction, comm: Comm, ranks: Sequence[int], shard: int) -> None:
        assert work.compressor is not None
        self._compressor, self._work, self._comm, self._ranks = work.compressor, work, comm, ranks
        casts = work.compressor.additive
        self._inside, self._all = (comm.world_size // len(ranks), comm.world_size) if casts else (1, 1)
        """By what a part is divided before the sum, and the sum: averages of so many ranks travel."""
        # Random numbers of a lane, a shard and a part are its own, before and after the sum.
        self._first_id = 2 * comm.world_size * work.lane + shard

    def summed(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the quantised sums of all parts, a row each; `vector` is left with what was not sent."""
        comm, own = self._comm, self._ranks.index(self._comm.rank)
        wire = _Wire(self._compressor, vector.numel(), len(self._ranks))
        parts = [wire.part(number, self._id(rank)) for number, rank in enumerate(self._ranks)]
        leaving = self._compressed(wire, vector, parts, self._inside)
        if len(self._ranks) == comm.world_size:
            arriving = comm.all_to_all(leaving).wait()
        else:
            arriving = self._swapped(dict(zip(self._ranks, leaving, strict=True)), leaving[own])

        sums = replace(wire.part(0, self._id(comm.rank, after=True)), hi=wire.sizes[own], layout=parts[own].layout)
        sums = replace(sums, pieces=((0, sums.hi),))
        record = self._compressed(wire, vector[parts[own].lo : parts[own].hi], [sums], self._all, arriving)[0]
        if len(self._ranks) == comm.world_size:
            return comm.all_gather(record).wait()
        return self._swapped(dict.fromkeys(self._ranks, record), record)

    def decode(self, rows: torch.Tensor, out: torch.Tensor) -> None:
        """Write the quantised sums of all parts to `out`."""
        wire = _Wire(self._compressor, out.numel(), len(self._ranks))
        for number, row in enumerate(rows):
            self._write_sum(wire, row[None], out[wire.starts[number] : wire.starts[number + 1]], self._all)

    def _id(self, rank: int, *, after: bool = False) -> int:
        return self._first_id + self._comm.world_size * after + rank

    def _swapped(self, leaving: dict[int, torch.Tensor], own: torch.Tensor) -> torch.Tensor:
        """Return what every rank sends to this one, a row each."""
        rows = torch.empty(len(self._ranks), own.numel(), dtype=own.dtype, device=own.device)
        rows[self._ranks.index(self._comm.rank)] = own
        others = [rank for rank in self._ranks if rank != self._comm.rank]
        arriving = {rank: rows[self._ranks.index(rank)] for rank in others}
        self._comm.swap({rank: leaving[rank] for rank in others}, arriving).wait()
        return rows

    def _compressed(
        self, wire: _Wire, vector: torch.Tensor, parts: Sequence[Part], share: int, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return parts of a vector over `share`, or of the sum of `rows`, quantised in one call, a row each.

        Where it keeps something, what is not sent of the vector stays there, and that of a sum is added to it.
        """
        work, keeps = self._work, self._work.keeps
        made = torch.zeros(len(parts), wire.nbytes, dtype=torch.uint8, device=vector.device)
        flat = made.view(-1)
        batch = Batch(tuple(parts), wire.views(flat, flat), {"a": vector}, rank=self._comm.rank)
        batch.seed, batch.step = work.seed, work.step
        coding = coding_of(self._compressor)
        if coding is not None:
            arrived = None if rows is None else Rows(rows, wire.codes_at)
            quantizers(vector.device).encode(batch, coding, arrived, takes=keeps)
            return made
        exact = vector
        if rows is not None:
            exact = torch.empty_like(vector)
            self._write_sum(wire, rows, exact, self._inside)
        batch.new = {"a": exact / share if share > 1 else exact}
        self._compressor.compress_batch(batch)
        if keeps:
            for row, part in zip(made, parts, strict=True):
                self._add(wire, row, exact[part.lo : part.hi], -share)
            if rows is not None:
                vector += exact
        return made

    def _write_sum(self, wire: _Wire, rows: torch.Tensor, out: torch.Tensor, scale: float) -> None:
        coding = coding_of(self._compressor)
        if coding is not None:
            quantizers(out.device).add_rows(Rows(rows, wire.codes_at), coding, out, fresh=True)
            return
        out.zero_()
        for row in rows:
            self._add(wire, row, out, scale)

    def _add(self, wire: _Wire, row: torch.Tensor, out: torch.Tensor, scale: float) -> None:
        if out.numel():
            ctx = Context(self._work.step, 0, 0, 1, 1.0, self._work.seed)
            self._compressor.decompress_add(wire.payload(row, out.numel()), out, ctx, scale)


class _Wire:
    """How the parts of a vector travel: scales, then values or codes, in rows of the same length for all."""

    def __init__(self, compressor: Compressor, numel: int, count: int) -> None:
        self._compressor = compressor
        self.sizes, self.starts = split_sizes(numel, count), split_starts(numel, count)
        largest = self._layout(self.sizes[0])
        self.codes_at, self._value_dtype = 4 * largest.scales, largest.value_dtype
        self.nbytes = 4 * math.ceil(largest.nbytes / 4)

    def part(self, number: int, tensor_id: int) -> Part:
        """Return a part of the vector, which is written to the row of its number."""
        lo, hi, row = self.starts[number], self.starts[number + 1], number * self.nbytes
        behind = row + self.codes_at
        at = Starts(scales=row // 4, codes=behind, values=behind // VALUE_BYTES[self._value_dtype])
        return Part(lo, hi, self._layout(hi - lo), 1.0, tensor_id, at, ((lo, hi),))

    def payload(self, row: torch.Tensor, numel: int) -> Payload:
        """Return the views of a row that holds so many elements."""
        layout, behind = self._layout(numel), row[self.codes_at :]
        payload = self.views(row[: 4 * layout.scales], behind)
        return replace(payload, codes=behind[: layout.code_bytes], values=payload.values[: layout.values])

    def views(self, scales: torch.Tensor, rest: torch.Tensor) -> Payload:
        """Return a payload of bytes: those of scales, and those of values or codes."""
        values = rest.view(getattr(torch, self._value_dtype))
        return replace(
            Payload.allocate(Layout(), rest.device), scales=scales.view(torch.float32), codes=rest, values=values
        )

    def _layout(self, numel: int) -> Layout:
        return self._compressor.layout(numel, 1.0) if numel else Layout()
