"""Steps that an exchange undid by itself: every rank's gradients were finite, and what came of them was not.

Training with such a compressor stands still, so this is said, and the third step in a row ends the run on every rank.
A scheme that chooses compressors drops the one it has chosen.
"""

import logging
from collections.abc import Iterable

import torch

from ssfx.collectives.comm import Comm
from ssfx.core.errors import RunError
from ssfx.planning.plan import Lane, Plan
from ssfx.runtime.message import Message
from ssfx.runtime.planner import Planner

_log = logging.getLogger("ssfx")
_MOST = 3
"""So many steps in a row end the run."""


class Unsound:
    """Finds the messages that made numbers that are not finite of finite gradients, on all ranks the same."""

    def __init__(self, comm: Comm) -> None:
        self._comm, self._in_a_row, self._step = comm, 0, -1
        self._lanes: list[Lane] = []

    def look(
        self, step: int, messages: Iterable[Message], finite: Iterable[bool], params: Iterable[torch.nn.Parameter]
    ) -> None:
        """Note which messages of a step that is to be undone are not finite by themselves; all ranks call it."""
        local = all(bool(torch.isfinite(p.grad).all()) for p in params if p.grad is not None)
        flags = torch.tensor([float(not one) for one in (local, *finite)], dtype=torch.float32)
        of_ranks, *found = self._comm.all_reduce(flags.to(self._comm.device), op="max").wait().tolist()
        self._lanes = [m.lane for m, bad in zip(messages, found, strict=True) if bad and not of_ranks]
        self._in_a_row = bool(self._lanes) + (self._in_a_row if step == self._step + 1 else 0) * bool(self._lanes)
        self._step = step

    def act(self, planner: Planner, plan: Plan) -> None:
        """After such a step: say so, and have a scheme that chooses compressors drop it; RunError for the third one."""
        lanes, self._lanes = self._lanes, []
        if not lanes:
            return
        first = next((s for lane in lanes for s in lane.segments if not s.dense), lanes[0].segments[0])
        what = f"the sum in {plan.by_name[first.tensors[0]].dtype}" if first.dense else f"compressor={first.compressor}"
        more = f" and {n - 1} more" if (n := sum(len(lane.tensors) for lane in lanes)) > 1 else ""
        said = f"{what} made numbers that are not finite of finite gradients ({first.tensors[0]}{more})"
        if self._in_a_row >= _MOST:
            remedy = "scale the loss down" if first.dense else "choose another one, or scheme=ddp"
            raise RunError(f"{said} in {self._in_a_row} steps in a row, so nothing is trained; {remedy}")
        dropped = planner.drop(
            plan, frozenset(n for lane in lanes for s in lane.segments if not s.dense for n in s.tensors)
        )
        if self._comm.rank == 0:
            _log.warning("%s; %s", said, dropped or f"the step was undone, and {_MOST} in a row end the run")
