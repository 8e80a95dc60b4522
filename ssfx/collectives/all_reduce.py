"""Dense ring all-reduce: every rank ends with the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.collectives.base import Collective, Load, Phase, collectives

if TYPE_CHECKING:
    import torch

    from ssfx.collectives.comm import Comm, Pending


@collectives.register()
class AllReduce(Collective):
    """Sum of equal-size messages, left in place on every rank (D-27)."""

    name = "all_reduce"
    summary = "dense ring all-reduce: the network adds, every rank gets the sum"
    source = "D-27"
    additive_only = True

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """Issue the in-place sum of `message`."""
        return comm.all_reduce(message)

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the one sum."""
        return (Phase("all_reduce", load.nbytes),)
