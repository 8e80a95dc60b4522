"""Sparse all-gather: every rank receives every rank's message, of fixed or of variable size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Collective, Load, Phase, collectives
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm, Pending


@collectives.register()
class AllGather(Collective):
    """All messages on every rank, one row each; sizes are equal and known from the plan (D-30)."""

    name = "all_gather"
    summary = "all-gather of equal-size messages: no size exchange, grows with the world size"
    source = "D-30"
    additive_only = False

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the gather of `message` (uint8, same length on all ranks)."""
        return comm.all_gather(message)

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the one gather."""
        return (Phase("all_gather", load.nbytes),)


@collectives.register()
class AllGatherTwice(AllGather):
    """The message in two gathers of half its size, as codes do that send values and indices apart: two start-ups."""

    name = "all_gather_twice"
    summary = "all-gather in two halves, as codes do that send indices and values apart"
    source = "OMGS-SGD and SSFusion, public code; D-30"

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue both gathers; rows come back whole."""
        half = message.numel() // 2
        first, second = comm.all_gather(message[:half]), comm.all_gather(message[half:])
        second.finish = lambda rows: torch.cat([first.wait(), rows], dim=1)
        return second

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the two gathers."""
        half = load.nbytes // 2
        return Phase("all_gather", half), Phase("all_gather", load.nbytes - half)


@collectives.register()
class AllGatherVariable(Collective):
    """As AllGather for messages of different length: lengths first, then rows padded to the longest (D-30)."""

    name = "all_gather_v"
    summary = "all-gather of variable-size messages: 8 bytes of sizes first, then padded rows"
    source = "D-30"
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

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return both rounds, for ranks that all contribute as much."""
        return Phase("all_gather", 8), Phase("all_gather", load.nbytes)
