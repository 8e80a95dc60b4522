"""What reducers share: pairs of index and value on the wire, and counts that tell every rank about a bad one.

Indices travel as integers, never as floats (float32 is exact only up to 2^24). Source: D-28.

Where both sides know the size of a message beforehand, pairs are in a record of fixed capacity: int32 [1 + 2 c], how
many entries there are, c slots for indices, c for the bits of float32 values. Unused slots are zero. Source: D-28.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ssfx.collectives.primitives import Swap, Traffic
from ssfx.collectives.reducer import Reduced
from ssfx.compressors.sparse import top_k
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm
    from ssfx.collectives.reducer import Reduced


PAIR_BYTES = 8
COUNT_BYTES = 8
BAD = -1
"""A count of this value says that the rank's vector was not finite."""


def pack(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return int32 [2 m]: m indices, then the m float32 values bit by bit."""
    return torch.cat([indices.to(torch.int32), values.view(torch.int32)])


def unpack(message: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the int64 indices and the float32 values of a packed message."""
    half = message.numel() // 2
    return message[:half].long(), message[half:].view(torch.float32)


def gather_counts(comm: Comm, count: int, bad: bool) -> list[int] | None:
    """Return the counts of all ranks, or None on all of them if one is bad; one all-gather of 8 bytes."""
    own = torch.tensor([BAD if bad else count], dtype=torch.int64, device=comm.device)
    counts: list[int] = comm.all_gather(own).wait().view(-1).tolist()
    return None if BAD in counts else counts


def gather_padded(comm: Comm, part: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
    """Return the parts of all ranks, rank r's with counts[r] entries; one all-gather of the longest size."""
    longest = max(counts)
    padded = torch.zeros(longest, dtype=part.dtype, device=part.device)
    padded[: part.numel()] = part
    rows = comm.all_gather(padded).wait()
    return [row[:count] for row, count in zip(rows, counts, strict=True)]


def poisoned(vector: torch.Tensor, traffic: Traffic) -> Reduced:
    """Return the result that makes every rank undo the step."""
    nothing = torch.zeros(1, dtype=torch.int64, device=vector.device)
    return Reduced(torch.full((1,), float("nan"), dtype=torch.float32, device=vector.device), nothing, 0, traffic)


Entries = tuple["torch.Tensor", "torch.Tensor"]
"""Indices (int64, ascending) and values (float32)."""


def record_bytes(capacity: int) -> int:
    """Return the bytes of a record."""
    return 4 * (1 + 2 * capacity)


def take_largest(vector: torch.Tensor, k: int) -> Entries:
    """Return the entries of the k largest magnitudes, never zeros, and leave zeros in their places in `vector`."""
    indices = top_k(vector, k) if k else torch.zeros(0, dtype=torch.int64, device=vector.device)
    values = vector[indices]
    present = values != 0
    indices, values = indices[present], values[present]
    vector[indices] = 0
    return indices, values


class Records:
    """Swaps lists of entries with one peer after another; once one of them is bad, so is everything sent later."""

    def __init__(self, comm: Comm, bad: bool) -> None:
        self._comm = comm
        self.bad = bad

    def swap(self, to: int, leaving: list[Entries], source: int, count: int, capacity: int) -> list[Entries]:
        """Send lists of at most `capacity` entries to a rank in one message; return the `count` lists of another."""
        message = torch.zeros(len(leaving), 1 + 2 * capacity, dtype=torch.int32, device=self._comm.device)
        for record, (indices, values) in zip(message, leaving, strict=True):
            size = len(indices)
            record[0] = BAD if self.bad else size
            record[1 : 1 + size] = indices
            record[1 + capacity : 1 + capacity + size] = values.view(torch.int32)
        received = torch.zeros(count, 1 + 2 * capacity, dtype=torch.int32, device=self._comm.device)
        self._comm.swap({to: message}, {source: received}).wait()
        sizes = received[:, 0].tolist()
        self.bad = self.bad or BAD in sizes
        lists = []
        for record, size in zip(received, sizes, strict=True):
            size = max(size, 0)
            values = record[1 + capacity : 1 + capacity + size].view(torch.float32)
            lists.append((record[1 : 1 + size].long(), values))
        return lists

    def among(self, rank_of: Callable[[int], int], capacity: int) -> Swap[Entries]:
        """Return `swap` for the members whose ranks `rank_of` tells, with records of one capacity."""
        return lambda to, leaving, source, count: self.swap(rank_of(to), leaving, rank_of(source), count, capacity)
