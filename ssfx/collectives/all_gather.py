"""Sparse all-gather: every rank receives every rank's message, of fixed or of variable size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Collective, Traffic, collectives
from ssfx.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm, Pending


class AllGather(Collective):
    """All messages on every rank, one row each; sizes are equal and known from the plan (spec 2.1)."""

    name = "all_gather"
    summary = "all-gather of equal-size messages: no size exchange, grows with the world size"
    source = "collectives spec 2.1"
    additive_only = False

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the gather of `message` (uint8, same length on all ranks)."""
        return comm.all_gather(message)

    def traffic(self, nbytes: int, world_size: int) -> Traffic:
        """Return P-1 messages of the full contribution."""
        return Traffic(world_size - 1, (world_size - 1) * nbytes)


class AllGatherVariable(Collective):
    """As AllGather for messages of different length: lengths first, then rows padded to the longest (spec 2.2)."""

    name = "all_gather_v"
    summary = "all-gather of variable-size messages: 8 bytes of sizes first, then padded rows"
    source = "collectives spec 2.2"
    additive_only = False
    variable = True
    blocking = True

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Exchange lengths, then issue the gather padded with zeros; rows keep the padding."""
        length = torch.tensor([message.numel()], dtype=torch.int64, device=message.device)
        longest = int(comm.all_gather(length).wait().max())
        padded = torch.zeros(longest, dtype=torch.uint8, device=message.device)
        padded[: message.numel()] = message
        return comm.all_gather(padded)

    def traffic(self, nbytes: int, world_size: int) -> Traffic:
        """Return both rounds, for ranks that all contribute `nbytes`."""
        return Traffic(2 * (world_size - 1), (world_size - 1) * (nbytes + 8))


collectives.add(AllGather())
collectives.add(AllGatherVariable())
