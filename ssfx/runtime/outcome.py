"""What becomes of the latest exchange: what it kept back is committed with an optimizer's step, or forgotten."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ssfx.compressors.memories.rates import Rates
from ssfx.runtime.exchange import Exchange

_log = logging.getLogger("ssfx")


class Outcome:
    """The memory of the latest exchange, until all its averages were stepped with or thrown away.

    `open` names the parameters whose averages are still in `.grad` and were not stepped with; `discarded` counts
    exchanges of which a script threw something away.
    """

    def __init__(
        self, exchange: Exchange, params: Mapping[str, torch.nn.Parameter], rates: Rates | None, *, speaks: bool
    ) -> None:
        self._exchange, self._params, self._rates, self._speaks = exchange, params, rates, speaks
        self.open: set[str] = set()
        self.discarded = 0
        self.in_closure = False
        self._looked_in: int | None = None
        self._later: Callable[[], None] | None = None

    def begin(self, names: set[str]) -> None:
        """The averages of `names` are in `.grad` now."""
        self.open, self._looked_in = names, None

    def forget(self) -> None:
        """Another state was loaded; nothing is open and nothing waits."""
        self.open, self._later = set(), None

    def when_settled(self, work: Callable[[], None]) -> None:
        """Do `work` once nothing is open, instead of what waits."""
        self._later = work
        if not self.open:
            self._catch_up()

    def added_to(self, name: str) -> None:
        """A backward pass without an exchange has added to the gradient of `name`."""
        if name in self.open:
            self._exchange.averages.added_to(name)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Commit what `optimizer` has just stepped with."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        self._commit({name for name in self.open if id(self._params[name]) in held})

    def look(self, arriving: str | None = None) -> None:
        """Once a backward pass: what a script has thrown away since the exchange will not be committed.

        `arriving` names the parameter that the pass has added to already.
        """
        task: int = torch._C._current_graph_task_id()
        if not self.open or (task == self._looked_in and task != -1):
            return
        self._looked_in = task
        gone = self._exchange.averages.gone(self.open, arriving)
        self.open -= gone
        if gone and not self.in_closure:
            self.discarded += 1
            if self.discarded == 1 and self._speaks:
                _log.warning(
                    "averaged gradients were thrown away without an optimizer's step, and so is what was kept back of "
                    "them; a backward pass whose gradients are not used needs no exchange inside sync.no_sync()"
                )

    def settle(self) -> set[str]:
        """Before an exchange: settle the one before it; return the parameters that the new one goes on with.

        Averages that are still in `.grad` are exchanged again with what is added to them: the memory goes on from what
        their exchange left, and both are committed together. A plan that waits, or a parameter that was frozen, ends
        that: then the first exchange counts. Of averages that are gone the memory is as before their exchange.
        """
        if not self.open:
            return set()
        self.look()
        frozen = {name for name in self.open if not self._params[name].requires_grad}
        self._commit(frozen if self._later is None else set(self.open))
        going_on, self.open = self.open, set()
        self._catch_up()
        return going_on

    def _commit(self, names: set[str]) -> None:
        if not names:
            return
        held: Any = self._rates.held if self._rates is not None else set()
        with torch.no_grad():
            self._exchange.commit(names - held if held else names)
        self.open -= names
        if not self.open:
            self._catch_up()

    def _catch_up(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            later()
