"""Weights of ranks are compared now and then: what one rank alone did to its own would stay unseen to the end."""

import logging
from collections.abc import Callable, Iterable

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.checks import Facts, difference, gather_facts

_log = logging.getLogger("ssfx")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, what its bits are read as."""


class Parted:
    """A warning, once, where ranks began a step with unequal weights: the tenth, and every hundredth."""

    def __init__(self, comm: Comm) -> None:
        self._comm, self._known = comm, False

    def look(self, step: int, params: Iterable[torch.nn.Parameter], facts: Callable[[], Facts]) -> None:
        """Compare `params` before a step that is due; `facts` are what may have made them unequal."""
        if self._comm.serial or self._known or not (step == 10 or step % 100 == 0):
            return
        why = weights_apart(self._comm, params, facts)
        self._known = bool(why)
        if why and self._comm.rank == 0:
            _log.warning(
                "weights are no longer equal on all ranks (compared before step %d): %s; nothing brings them together "
                "again, so load one checkpoint on every rank, and let every rank step alike", step, why,
            )  # fmt: skip


def weights_apart(comm: Comm, params: Iterable[torch.nn.Parameter], facts: Callable[[], Facts]) -> str:
    """Return what differs between ranks whose weights are not equal, by `facts`; "" where they are. All ranks call it.

    One number a rank is gathered: the sum of the weights' bits. What was done to one rank's weights alone is no fact.
    """
    mine = torch.zeros(1, dtype=torch.int64, device=comm.device)
    for p in params:
        bits = p.detach().reshape(-1).view(_INTEGERS[min(8, p.element_size())])
        mine += bits.sum(dtype=torch.int64).to(mine.device)
    if len(set(comm.all_gather(mine).wait().view(-1).tolist())) == 1:
        return ""
    return difference(gather_facts(comm, facts())) or "a step, a load or a change that not every rank made"
