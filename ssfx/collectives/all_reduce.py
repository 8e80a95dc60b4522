"""Dense ring all-reduce: every rank ends with the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Collective, Traffic, collectives

if TYPE_CHECKING:
    import torch

    from ssfx.collectives.comm import Comm, Pending


class AllReduce(Collective):
    """Sum of equal-size messages, left in place on every rank (collectives specification, section 1.1)."""

    name = "all_reduce"
    summary = "dense ring all-reduce: the network adds, every rank gets the sum"
    source = "collectives spec 1.1"
    additive_only = True

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the in-place sum of `message`."""
        return comm.all_reduce(message)

    def traffic(self, nbytes: int, world_size: int) -> Traffic:
        """Return 2(P-1) messages and 2(P-1)/P of the bytes."""
        return Traffic(2 * (world_size - 1), 2 * (world_size - 1) * nbytes // world_size)


collectives.add(AllReduce())
