"""What one rank sends in each primitive: the convention by which all traffic is counted, planned and simulated.

Libraries choose their own algorithms; these are the usual ones: rings for all_reduce, all_gather and reduce_scatter,
one message to every peer for all_to_all, a binomial tree for broadcast. Source: D-27. Collectives that write an
all-gather themselves use Bruck's: ceil(log2) messages of a growing number of parts, for any number of members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one rank puts on its outgoing link."""

    messages: int
    sent_bytes: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.sent_bytes + other.sent_bytes)


def split_sizes(total: int, parts: int) -> list[int]:
    """Return the sizes of `parts` nearly equal pieces, the longer ones first, as torch.tensor_split cuts."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def split_starts(total: int, parts: int) -> list[int]:
    """Return where each of the pieces of `split_sizes` begins, and `total`: parts + 1 numbers."""
    starts = [0]
    for size in split_sizes(total, parts):
        starts.append(starts[-1] + size)
    return starts


def rounds(world_size: int) -> int:
    """Return ceil(log2(world_size)): the length of a binomial tree or of recursive doubling."""
    return (world_size - 1).bit_length()


def traffic(primitive: str, nbytes: int, world_size: int, rank: int = 0, item_bytes: int = 1) -> Traffic:
    """Return what `rank` sends in `primitive` when every rank contributes `nbytes`; a broadcast starts at rank 0.

    In all_to_all the contribution is what goes to all ranks together, the own part included, in equal parts.
    """
    p = world_size
    if p == 1:
        return Traffic(0, 0)
    if primitive == "all_gather":
        return Traffic(p - 1, (p - 1) * nbytes)
    if primitive == "send":
        return Traffic(1, nbytes)
    if primitive == "broadcast":
        first = rank.bit_length()
        children = sum(1 for j in range(first, rounds(p)) if rank + (1 << j) < p)
        return Traffic(children, children * nbytes)
    size, longer = divmod(nbytes // item_bytes, p)

    def chunk(owner: int) -> int:
        """As `split_sizes` cuts."""
        return item_bytes * (size + (owner % p < longer))

    if primitive == "reduce_scatter":
        return Traffic(p - 1, nbytes - chunk(rank + 1))
    if primitive == "all_to_all":
        return Traffic(p - 1, nbytes - chunk(rank))
    if primitive == "all_reduce":
        return Traffic(2 * (p - 1), 2 * nbytes - chunk(rank + 1) - chunk(rank + 2))
    raise ValueError(f"unknown primitive {primitive!r}")


def to_peers(nbytes: Sequence[int], rank: int) -> Traffic:
    """Return the traffic of one message to every other rank, `nbytes[r]` to rank r; empty ones are not sent."""
    sizes = [size for r, size in enumerate(nbytes) if r != rank and size]
    return Traffic(len(sizes), sum(sizes))


T = TypeVar("T")

Swap = Callable[[int, "list[T]", int, int], "list[T]"]
"""swap(to, parts, source, count): send `parts` to one member in one message; return `count` parts of another."""


def bruck_rounds(members: int) -> list[tuple[int, int]]:
    """Return (distance, parts) of each round: how far and how many; parts add up to members - 1."""
    rounds, have = [], 1
    while have < members:
        rounds.append((have, min(have, members - have)))
        have += rounds[-1][1]
    return rounds


def bruck_gather(own: T, position: int, members: int, swap: Swap[T]) -> list[T]:
    """Return the parts of all members in order of position.

    Member w holds parts w, w + 1, ... (modulo `members`): in a round of distance D it sends the first ones that it
    holds to w - D, and appends those of w + D. Source: D-33.
    """
    held = [own]
    for distance, count in bruck_rounds(members):
        to, source = (position - distance) % members, (position + distance) % members
        held += swap(to, held[:count], source, count)
    return [held[(j - position) % members] for j in range(members)]
