"""SparCML: exact sums of sparse vectors that turn dense on the way when they have filled up.

A stream is sparse until a list of pairs would be no shorter than the vector itself. On the wire it is int32: a count,
then as many indices and the bits of as many float32 values, or the bits of all values when the count equals the size of
the vector. Source: D-35.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssfx.collectives.base import Load, Phase, collectives, merging
from ssfx.collectives.pairs import BAD, PAIR_BYTES, pack, poisoned, unpack
from ssfx.collectives.primitives import Traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


HEADER_BYTES = 4


def densifies(entries: int, size: int) -> bool:
    """Return whether that many entries of a vector of `size` travel dense: what two streams have counts in full."""
    return PAIR_BYTES * entries >= 4 * size


def stream_bytes(entries: int, size: int) -> int:
    """Return the bytes of a stream of that many entries."""
    return HEADER_BYTES + (4 * size if densifies(entries, size) else PAIR_BYTES * entries)


@dataclass(frozen=True, slots=True)
class Stream:
    """Part of a sum over ranks. values: float32, at `indices` (int64, ascending) or of the whole vector if None.

    `bad` streams have no values: some rank that contributed was not finite.
    """

    size: int
    values: torch.Tensor
    indices: torch.Tensor | None = None
    bad: bool = False

    @classmethod
    def of(cls, size: int, indices: torch.Tensor, values: torch.Tensor) -> Stream:
        """Return the stream of some entries, in the shorter form.

        The released code makes a stream dense only when it adds; a long list would then be taken for a vector.
        """
        if not densifies(len(indices), size):
            return cls(size, values, indices)
        dense = torch.zeros(size, dtype=torch.float32, device=values.device)
        dense[indices] = values
        return cls(size, dense)

    @classmethod
    def poisoned(cls, size: int, device: torch.device) -> Stream:
        """Return the stream that makes every sum it enters a bad one."""
        return cls(size, torch.zeros(0, dtype=torch.float32, device=device), bad=True)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        if self.bad:
            return HEADER_BYTES
        return HEADER_BYTES + self.values.numel() * (4 if self.indices is None else PAIR_BYTES)

    def plus(self, other: Stream) -> Stream:
        """Return the sum; dense if the two lists together, not their union, reach the size of the vector."""
        if self.bad or other.bad:
            return self.poisoned(self.size, self.values.device)
        if self.indices is None or other.indices is None or densifies(len(self.values) + len(other.values), self.size):
            return Stream(self.size, self.dense() + other.dense())
        indices, place = torch.cat([self.indices, other.indices]).unique(return_inverse=True)
        values = torch.zeros(len(indices), dtype=torch.float32, device=self.values.device)
        return Stream(self.size, values.index_add_(0, place, torch.cat([self.values, other.values])), indices)

    def dense(self) -> torch.Tensor:
        """Return the whole vector; the stream's own if it is dense."""
        if self.indices is None:
            return self.values
        dense = torch.zeros(self.size, dtype=torch.float32, device=self.values.device)
        dense[self.indices] = self.values
        return dense

    def message(self) -> torch.Tensor:
        """Return the stream as it travels."""
        count = BAD if self.bad else self.values.numel()
        header = torch.tensor([count], dtype=torch.int32, device=self.values.device)
        body = self.values.view(torch.int32) if self.indices is None else pack(self.indices, self.values)
        return torch.cat([header, body])

    @classmethod
    def read(cls, message: torch.Tensor, size: int) -> Stream:
        """Return the stream that begins at the start of `message`, which may be longer."""
        count = int(message[0])
        if count == BAD:
            return cls.poisoned(size, message.device)
        if count == size:
            return cls(size, message[1 : 1 + size].view(torch.float32))
        indices, values = unpack(message[1 : 1 + 2 * count])
        return cls(size, values, indices)


class Post:
    """Exchanges streams, whose lengths only the sender knows, and describes what that sent."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.rank, self.world_size = comm.rank, comm.world_size
        self._apart = not comm.takes_shorter
        self.used = Traffic(0, 0)

    def swap(self, sends: Mapping[int, Stream], receives: Mapping[int, int]) -> dict[int, Stream]:
        """Send a stream to each rank of `sends`; return those of the ranks of `receives`, by the size of the vector.

        Where a message must not be shorter than the room for it, the counts travel first, as messages of their own; the
        bytes are the same.
        """
        leaving = {rank: stream.message() for rank, stream in sends.items()}
        # No stream is longer than a count and the dense vector.
        room = {r: torch.empty(1 + size, dtype=torch.int32, device=self._comm.device) for r, size in receives.items()}
        if self._apart:
            self._comm.swap(_first(leaving), _first(room)).wait()
            rest = {rank: message[1 : _words(int(message[0]), receives[rank])] for rank, message in room.items()}
            self._comm.swap({rank: message[1:] for rank, message in leaving.items()}, rest).wait()
        else:
            self._comm.swap(leaving, room).wait()
        for stream in sends.values():
            bodies = 1 if self._apart and stream.nbytes > HEADER_BYTES else 0
            self.used += Traffic(1 + bodies, stream.nbytes)
        return {rank: Stream.read(message, receives[rank]) for rank, message in room.items()}

    def trade(self, peer: int, stream: Stream, size: int) -> Stream:
        """Return a peer's stream, of a vector of `size`, for the own one."""
        return self.swap({peer: stream}, {peer: size})[peer]


def _first(messages: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    return {rank: message[:1] for rank, message in messages.items()}


def _words(count: int, size: int) -> int:
    """Return the int32 words of a stream with that count."""
    return 1 + max(0, count if count == size else 2 * count)


@collectives.register()
class SparCmlRecursiveDoubling(Reducer):
    """Whole streams to one partner after another, twice as far each time: few messages, for little data (D-35).

    Nothing is dropped, so no rank keeps anything of it. Any rank left over from a power of two hands its stream to a
    neighbour and gets the sum: of the first 2 x rest ranks the even ones do that; the odd ones r are virtual rank
    r / 2, the others r - rest.
    """

    name = "sparcml_rd"
    summary = "recursive doubling of whole sparse vectors, dense once they are full; any number of ranks"
    source = "SparCML, Renggli et al. 2019; D-35"
    edits_memory = False

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the longest chain of messages; for selections without overlap it is the most that it can be."""
        core, rest = _core(load.world_size)
        groups = [1 << step for step in range(core.bit_length())]  # of virtual ranks that have the same sum
        counts = [load.together(group + min(rest, group)) for group in groups]  # the first have folded ranks' too
        chain = [load.kept, *counts] if rest else counts[:-1]
        steps = ((Phase("send", stream_bytes(count, load.numel)), merging(load, count)) for count in chain)
        return tuple(phase for step in steps for phase in step)

    def traffic(self, load: Load) -> Traffic:
        """Return what the busiest rank sends: the longest chain of `phases` begins with another one's stream."""
        used = super().traffic(load)
        if _core(load.world_size)[1]:
            folded = stream_bytes(load.kept, load.numel)
            return Traffic(used.messages - 1, used.sent_bytes - folded)
        return used

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Sum the streams of all ranks."""
        assert work.indices is not None
        assert work.values is not None
        size, post = work.vector.numel(), Post(comm)
        own = Stream.poisoned(size, work.vector.device) if work.bad else Stream.of(size, work.indices, work.values)
        total = _summed(own, post)
        if total.bad:
            return poisoned(work.vector, post.used)
        return Reduced(total.values, total.indices, work.indices.numel(), post.used)


def _summed(own: Stream, post: Post) -> Stream:
    """Return the sum of every rank's stream, equal on all ranks."""
    core, rest = _core(post.world_size)
    ranks = [2 * v + 1 if v < rest else v + rest for v in range(core)]
    rank = post.rank
    # Fold: an even rank among the first hands its stream over and waits for the sum.
    if rank not in ranks:
        post.swap({rank + 1: own}, {})
        return post.swap({}, {rank + 1: own.size})[rank + 1]
    folds = rank < 2 * rest
    if folds:
        own = post.swap({}, {rank - 1: own.size})[rank - 1].plus(own)
    # Double: partners 1, 2, 4, ... away swap all that they have added up.
    virtual = ranks.index(rank)
    for step in range(core.bit_length() - 1):
        own = own.plus(post.trade(ranks[virtual ^ (1 << step)], own, own.size))
    if folds:
        post.swap({rank - 1: own}, {})
    return own


def _core(world_size: int) -> tuple[int, int]:
    """Return the largest power of two of ranks that there are, and how many ranks are left over."""
    core = 1 << (world_size.bit_length() - 1)
    return core, world_size - core
