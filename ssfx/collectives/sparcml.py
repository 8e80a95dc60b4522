"""SparCML: exact sums of sparse vectors that turn dense on the way when they have filled up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from ssfx.collectives import bruck
from ssfx.collectives.base import Load, Phase, collectives, merging
from ssfx.collectives.pairs import poisoned
from ssfx.collectives.primitives import Traffic
from ssfx.collectives.reducer import Reduced, Reducer, Reduction
from ssfx.collectives.streams import Post, Stream, concatenated, stream_bytes
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


class SparCml(Reducer):
    """Sums what a compressor selected; nothing is dropped, so no rank keeps anything of it (D-35)."""

    source = "SparCML, Renggli et al. 2019; D-35"
    edits_memory = False

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Sum the streams of all ranks."""
        assert work.indices is not None
        assert work.values is not None
        size, post = work.vector.numel(), Post(comm)
        own = Stream.poisoned(size, work.vector.device) if work.bad else Stream.of(size, work.indices, work.values)
        total = self._sum(own, post)
        if total.bad:
            return poisoned(work.vector, post.used)
        return Reduced(total.values, total.indices, work.indices.numel(), post.used)

    @abstractmethod
    def _sum(self, own: Stream, post: Post) -> Stream:
        """Return the sum of every rank's stream, equal on all ranks."""


class Folding(SparCml):
    """Algorithms for a power of two of ranks: any rank left over hands its stream to a neighbour and gets the sum.

    Of the first 2 x rest ranks the even ones do that; the odd ones r are virtual rank r / 2, the others r - rest.
    """

    def traffic(self, load: Load) -> Traffic:
        """Return what the busiest rank sends: the longest chain of `phases` begins with another one's stream."""
        used = super().traffic(load)
        if _core(load.world_size)[1]:
            folded = stream_bytes(load.kept, load.numel)
            return Traffic(used.messages - 1, used.sent_bytes - folded)
        return used

    def _sum(self, own: Stream, post: Post) -> Stream:
        core, rest = _core(post.world_size)
        ranks = [2 * v + 1 if v < rest else v + rest for v in range(core)]
        rank = post.rank
        if rank not in ranks:
            post.swap({rank + 1: own}, {})
            return post.swap({}, {rank + 1: own.size})[rank + 1]
        folds = rank < 2 * rest
        if folds:
            own = post.swap({}, {rank - 1: own.size})[rank - 1].plus(own)
        total = self._among(own, post, ranks.index(rank), ranks)
        if folds:
            post.swap({rank - 1: total}, {})
        return total

    @abstractmethod
    def _among(self, own: Stream, post: Post, virtual: int, ranks: list[int]) -> Stream:
        """Return the sum over `ranks`, a power of two of them, of which this is number `virtual`."""


@collectives.register()
class SparCmlRecursiveDoubling(Folding):
    """Whole streams to one partner after another, twice as far each time: few messages, for little data."""

    name = "sparcml_rd"
    summary = "recursive doubling of whole sparse vectors, dense once they are full; any number of ranks"

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the longest chain of messages; for selections without overlap it is the most that it can be."""
        core, rest = _core(load.world_size)
        groups = [1 << step for step in range(core.bit_length())]  # of virtual ranks that have the same sum
        counts = [load.together(group + min(rest, group)) for group in groups]  # the first have folded ranks' too
        chain = [load.kept, *counts] if rest else counts[:-1]
        steps = ((Phase("send", stream_bytes(count, load.numel)), merging(load, count)) for count in chain)
        return tuple(phase for step in steps for phase in step)

    def _among(self, own: Stream, post: Post, virtual: int, ranks: list[int]) -> Stream:
        for mask in _masks(ranks):
            own = own.plus(post.trade(ranks[virtual ^ mask], own, own.size))
        return own


@collectives.register()
class SparCmlSplit(Folding):
    """Each rank adds up one part of the vector, then parts are joined by recursive doubling: for more data."""

    name = "sparcml_split"
    summary = "sparse parts to their owners, whose sums are joined by recursive doubling; any number of ranks"

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the longest chain of messages, for selections that are spread evenly."""
        core, rest = _core(load.world_size)
        size, kept, total = load.numel, load.kept, load.together(load.world_size)
        scattered = stream_bytes(load.together(2 if rest else 1) // core, size // core)
        joined = [stream_bytes(total // core << step, size // core << step) for step in range(core.bit_length() - 1)]
        folded = [stream_bytes(kept, size)] if rest else []
        unfolded = [stream_bytes(total, size)] if rest else []
        first, *last = ([Phase("send", nbytes) for nbytes in part] for part in (folded, joined, unfolded))
        return (*first, Phase("send", scattered, times=core - 1), merging(load, kept), *last[0], *last[1])

    def _among(self, own: Stream, post: Post, virtual: int, ranks: list[int]) -> Stream:
        starts = even_starts(own.size, len(ranks))
        part = reduce(Stream.plus, _own_parts(post, own.split(starts), virtual, ranks))
        for mask in _masks(ranks):
            other = virtual & -mask ^ mask  # where the partner's joined parts begin
            theirs = post.trade(ranks[virtual ^ mask], part, starts[other + mask] - starts[other])
            part = concatenated([part, theirs] if virtual < other else [theirs, part])
        return part


@collectives.register()
class SparCmlDense(SparCml):
    """Each rank adds up one part of the vector, sparse parts in, dense sums out: for sums that fill the vector."""

    name = "sparcml_dsar"
    summary = "sparse parts to their owners, a dense all-gather of the sums"

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the messages of a rank whose selection is spread evenly."""
        p = load.world_size
        part = load.numel // p
        sums = [4 * part * count for _, count in bruck.gather_rounds(p)]
        own = Phase("send", stream_bytes(load.kept // p, part), times=p - 1)
        return (own, merging(load, load.kept), *(Phase("send", nbytes) for nbytes in sums))

    def _sum(self, own: Stream, post: Post) -> Stream:
        p, rank = post.world_size, post.rank
        starts = even_starts(own.size, p)
        sizes = [stop - start for start, stop in pairwise(starts)]
        empty = Stream(sizes[rank], torch.zeros(sizes[rank], dtype=torch.float32, device=own.values.device))
        part = reduce(Stream.plus, _own_parts(post, own.split(starts), rank, range(p)), empty)
        if part.bad:  # every rank got a part of the bad vector, and so knows it too
            return Stream.poisoned(own.size, own.values.device)

        def swap(to: int, parts: list[torch.Tensor], source: int, count: int) -> list[torch.Tensor]:
            coming = [sizes[(source + x) % p] for x in range(count)]
            return list(post.swap_values(to, torch.cat(parts), source, sum(coming)).split(coming))

        return Stream(own.size, torch.cat(bruck.gather(part.values, rank, p, swap)))


def even_starts(size: int, parts: int) -> list[int]:
    """Return where equal parts begin, and `size`: parts + 1 numbers; the last part has the remainder, as released."""
    return [size // parts * i for i in range(parts)] + [size]


def _core(world_size: int) -> tuple[int, int]:
    """Return the largest power of two of ranks that there are, and how many ranks are left over."""
    core = 1 << (world_size.bit_length() - 1)
    return core, world_size - core


def _masks(ranks: Sequence[int]) -> list[int]:
    """Return 1, 2, 4, ... below the number of ranks."""
    return [1 << step for step in range(len(ranks).bit_length() - 1)]


def _own_parts(post: Post, parts: list[Stream], own: int, ranks: Sequence[int]) -> list[Stream]:
    """Send every part to its owner, one of `ranks`; return the streams of the own part from all of them in order."""
    others = [v for v in range(len(parts)) if v != own]
    received = post.swap({ranks[v]: parts[v] for v in others}, {ranks[v]: parts[own].size for v in others})
    return [parts[own] if v == own else received[ranks[v]] for v in range(len(parts))]
