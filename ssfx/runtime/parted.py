"""Weights of ranks are compared now and then: what one rank alone did to its own would stay unseen to the end."""

import logging
from collections.abc import Callable, Iterable

import torch

from ssfx.collectives.comm import Comm
from ssfx.runtime.checks import Facts, difference, gather_facts

_log = logging.getLogger("ssfx")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, what its bits are read as."""
_SIGNED_ZEROS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WIDTH = 1024


class Parted:
    """A warning, once, where optimizers left ranks with unequal weights: before the tenth and every hundredth step.

    Weights are read right after an optimizer has stepped: later a script may perturb them on purpose.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm, self._known = comm, False
        self._noted: torch.Tensor | None = None

    def note(self, step: int, params: Iterable[torch.nn.Parameter]) -> None:
        """An optimizer has stepped after exchange number `step`; read the weights if the next one compares."""
        if not self._known and _due(step + 1):
            self._noted = fingerprint_of(params).to(self._comm.device)

    def forget(self) -> None:
        """The latest step was local, so that weights may differ."""
        self._noted = None

    def look(self, step: int, facts: Callable[[], Facts]) -> None:
        """Compare before a step that is due, unless no optimizer stepped; `facts` may say why weights differ."""
        if self._known or not _due(step):
            return
        noted, self._noted = self._noted, None
        here = torch.tensor([noted is not None], dtype=torch.int64, device=self._comm.device)
        bits = torch.zeros_like(here) if noted is None else noted.view(1)
        rows = self._comm.all_gather(torch.cat([bits, here])).wait().view(-1, 2).tolist()
        if not all(there for _, there in rows) or len({of_rank for of_rank, _ in rows}) == 1:
            return
        why = difference(gather_facts(self._comm, facts())) or "a step, a load or a change that not every rank made"
        self._known = True
        if self._comm.rank == 0:
            _log.warning(
                "weights are no longer equal on all ranks (compared before step %d): %s; nothing brings them together "
                "again, so load one checkpoint on every rank, and let every rank step alike",
                step,
                why,
            )


def _due(step: int) -> bool:
    return step == 10 or step % 100 == 0


def fingerprint_of(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return one number for the bits of all tensors, in their order."""
    total = torch.zeros((), dtype=torch.int64)
    for tensor in tensors:
        bits = fingerprint(tensor)
        total = total.to(bits.device) * 31 + bits
    return total


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """Return a number (int64) that follows from the bits of a tensor and where they are; -0.0 counts as 0.0."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.dtype in _SIGNED_ZEROS:
        flat = flat + 0.0
    at, size = flat.storage_offset() * flat.element_size(), flat.numel() * flat.element_size()
    words = flat.view(_INTEGERS[next(width for width in (8, 4, 2, 1) if at % width == size % width == 0)])
    # Words in a table: each counts by its row and by its column, in two sums that read as fast as memory is.
    rows = len(words) // _WIDTH
    table, rest = words[: rows * _WIDTH].view(rows, _WIDTH), words[rows * _WIDTH :].to(torch.int64)
    total = (rest * _places(rest)).sum()
    for axis in (0, 1):
        sums = table.sum(axis, dtype=torch.int64)
        total += (sums * _places(sums)).sum() * (1 + 1_000_002 * axis)
    return total


def _places(sums: torch.Tensor) -> torch.Tensor:
    return 2 * torch.arange(len(sums), device=sums.device) + 1
