"""Row-sparse sum: rows of a table travel to their owners and back, if anything is in them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from ssfx.collectives.base import Collective, Load, Phase, collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.collectives.pairs import COUNT_BYTES, gather_counts, gather_padded
from ssfx.collectives.primitives import Traffic, split_starts, to_peers, traffic
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

_ID_BYTES = 4


@dataclass(frozen=True)
class RowSparseOptions(Bounded):
    """A message is a table of rows of `width` elements.

    `touched`: the share of rows that one rank is expected to have something in; it decides predicted times, nothing
    else.
    """

    width: Annotated[int, 1] = 1
    touched: Annotated[float, "(0, 1]"] = 0.1


@collectives.register(RowSparseOptions())
class RowSparse(Collective):
    """Each rank owns a range of rows, sums what the others have in it, and gives the sums to everyone.

    The result is the dense sum, added in rank order, NaN and infinities included. Embedding gradients, of which a batch
    touches few rows, are what it is for: the other rows never travel.
    """

    name = "row_sparse"
    summary = "exact sum of a table of which ranks fill few rows: to the rows' owners, then to everyone"
    source = "Kim et al. 2019 (Parallax); D-39"
    additive_only = True
    blocking = True
    options: RowSparseOptions

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Sum `message` (flat, any floating dtype) in place; both rounds have ended on return."""
        table = message.view(self._rows(message.numel()), self.options.width)
        numbers = (table != 0).any(1).nonzero().view(-1)  # NaN differs from zero, so it travels
        starts = torch.tensor(split_starts(len(table), comm.world_size), device=numbers.device)
        lengths = torch.searchsorted(numbers, starts).diff().tolist()
        parts = [_pack(mine, table[mine]) for mine in numbers.split(lengths)]
        own = _pack(*_summed([_unpack(part, table) for part in _to_owners(parts, comm)], table))
        sizes = gather_counts(comm, own.numel(), bad=False)  # a bad row tells by itself
        assert sizes is not None
        for part in gather_padded(comm, own, sizes):
            numbers, rows = _unpack(part, table)
            table[numbers] = rows
        return Pending(None, message)

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the sizes and rows to the owners, then sizes and sums to all, if ranks touch rows independently."""
        p, rows, touched = load.world_size, self._rows(load.numel), self.options.touched
        row_bytes = _ID_BYTES + self.options.width * load.nbytes / load.numel
        owned = math.ceil(rows * (1 - (1 - touched) ** p) / p)
        return (
            Phase("all_to_all", COUNT_BYTES * p),
            Phase("all_to_all", touched * rows * row_bytes),
            Phase("all_gather", COUNT_BYTES),
            Phase("all_gather", owned * row_bytes),
        )

    def sent(self, numbers: Sequence[Sequence[int]], numel: int, item_bytes: int, rank: int) -> Traffic:
        """Return what `rank` sends when rank r has something in the rows `numbers[r]`, ascending."""
        p, rows = len(numbers), self._rows(numel)
        row_bytes = _ID_BYTES + self.options.width * item_bytes
        to_owners = _per_owner(numbers[rank], rows, p)
        longest = max(_per_owner(sorted(set().union(*numbers)), rows, p))
        used = to_peers([COUNT_BYTES] * p, rank) + to_peers([row_bytes * count for count in to_owners], rank)
        return used + traffic("all_gather", COUNT_BYTES, p) + traffic("all_gather", row_bytes * longest, p)

    def _rows(self, numel: int) -> int:
        width: int = self.options.width
        if numel % width:
            raise ConfigError(
                f"row_sparse(width={width}) cannot cut {numel} elements into rows; "
                "give each table a lane of its own with its own width"
            )
        return numel // width


def _per_owner(numbers: Sequence[int], rows: int, world_size: int) -> list[int]:
    """Return how many of the ascending row numbers belong to each owner."""
    cuts = [bisect_left(numbers, start) for start in split_starts(rows, world_size)]
    return [hi - lo for lo, hi in pairwise(cuts)]


def _to_owners(parts: list[torch.Tensor], comm: Comm) -> list[torch.Tensor]:
    """Return what every rank has for this one, in rank order; parts[r] goes to rank r."""
    device, peers = parts[0].device, [r for r in range(comm.world_size) if r != comm.rank]
    sizes = torch.tensor([part.numel() for part in parts], dtype=torch.int64, device=device)
    received = torch.zeros_like(sizes)
    comm.swap({r: sizes[r : r + 1] for r in peers}, {r: received[r : r + 1] for r in peers}).wait()
    arrived = [torch.empty(size, dtype=torch.uint8, device=device) for size in received.tolist()]
    comm.swap({r: parts[r] for r in peers}, {r: arrived[r] for r in peers}).wait()
    arrived[comm.rank] = parts[comm.rank]
    return arrived


def _summed(parts: list[tuple[torch.Tensor, torch.Tensor]], table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the row numbers of all parts, ascending, and the rows' sums, added part by part."""
    numbers, places = torch.cat([numbers for numbers, _ in parts]).unique(return_inverse=True)
    sums = table.new_zeros(len(numbers), table.shape[1])
    for place, (_, rows) in zip(places.split([len(rows) for _, rows in parts]), parts, strict=True):
        sums.index_add_(0, place, rows)
    return numbers, sums


def _pack(numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return row numbers, as int32, and the rows' elements as bytes."""
    return torch.cat([numbers.to(torch.int32).view(torch.uint8), rows.view(-1).view(torch.uint8)])


def _unpack(part: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the row numbers (int64) and the rows of a part; bytes are copied, so that typed views are aligned."""
    count = part.numel() // (_ID_BYTES + table.shape[1] * table.element_size())
    head, body = part[: _ID_BYTES * count].clone(), part[_ID_BYTES * count :].clone()
    return head.view(torch.int32).long(), body.view(table.dtype).view(count, table.shape[1])
