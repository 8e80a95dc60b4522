"""Reducers: collectives that add up elements of a vector, and decide on the way what of them survives.

A gather leaves the sum to the receivers and grows with the world size. A reducer has several phases, each rank works on
a part of the vector, and elements that lose on the way go back into the memory of the rank that has them. Source: D-29,
D-32 to D-37.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ssfx.collectives.base import Collective
from ssfx.collectives.primitives import Traffic
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm, Pending
    from ssfx.compressors.base import Compressor

State = dict[str, "torch.Tensor"]


@dataclass(slots=True)
class Reduction:
    """One exchange, as a reducer finds it.

    vector: float32 [n], the accumulated gradient; the reducer leaves in it what this rank keeps for later. kept: how
    many elements of the global result are aimed at (k). state: the reducer's own, changed in place; it is committed or
    forgotten with the step. indices (int64, ascending, unique) and values (float32): what the compressor selected and
    took out of `vector`; both empty when the reducer selects. bad: this rank's vector is not finite, and `vector` is to
    be treated as zeros. compressor: of a reducer that quantises. lane: a number that no other lane of the plan has.
    keeps: what is left in `vector` is used.
    """

    vector: torch.Tensor
    kept: int
    step: int = 0
    seed: int = 0
    state: State = field(default_factory=dict)
    indices: torch.Tensor | None = None
    values: torch.Tensor | None = None
    bad: bool = False
    compressor: Compressor | None = None
    lane: int = 0
    keeps: bool = True


@dataclass(slots=True)
class Reduced:
    """The sum over ranks, equal on all of them, and what this rank did for it.

    values: float32 at `indices` (int64, unique), or the whole vector when `indices` is None; NaN on every rank when a
    rank was `bad`. sent: how many elements this rank put in. traffic: messages and bytes this rank sent, computed from
    the counts by the formulas in the reducer's file; tests compare it with what Comm counted.
    """

    values: torch.Tensor
    indices: torch.Tensor | None
    sent: int
    traffic: Traffic


class Reducer(Collective):
    """A collective that sums selected elements; see `Reduction` and `Reduced`."""

    additive_only = False
    blocking = True
    selects: ClassVar[bool] = False
    """It selects from the accumulated vector itself; `rules` names the compressors whose rule it follows."""
    rules: ClassVar[tuple[str, ...]] = ()
    quantizes: ClassVar[bool] = False
    """It sends every element, in the few bits of the compressor."""
    state_names: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors of `initial_state`."""
    decodes_once: ClassVar[bool] = True
    """Decoding the result costs as much as one payload; if False, as much as the payloads of all ranks."""
    edits_memory: ClassVar[bool] = True
    """It changes `vector`, so a memory must keep nothing but what was not sent (`Memory.keeps_rest`)."""

    def start(self, message: torch.Tensor, comm: Comm) -> Pending:
        """A reducer needs more than a message; the runtime calls `reduce`."""
        raise TypeError(f"collective {self.name} reduces vectors; call reduce")

    def initial_state(self, numel: int, world_size: int) -> State:
        """Return the state before the first step; names that begin with "threshold" follow the loss scale."""
        return {}

    @abstractmethod
    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Exchange; all ranks call it with the same `kept`, `step` and `seed`.

        If any rank is bad, the values are NaN on every rank and no rank waits for another; state and vector then do not
        matter, because the step is undone.
        """
