"""When an exchange counts: a step that used its averages commits its residuals, else both are undone.

The contract (docs/attach.md): an exchanged gradient counts when an optimizer that holds its weight steps while it is in
`.grad`; a script that moves weights itself says `sync.used()`. A gradient all of whose sent elements are zero at the
step was cancelled by the script. Zeros that selection left say nothing, and weights that moved say nothing. What no
step used before the next backward pass is undone, unless it stands in `.grad`: then it goes into the next exchange.

A step is undone on every rank where a number that was exchanged is not finite.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Any

import torch

from ssfx.compressors.memories.rates import Rates
from ssfx.core.errors import ConfigError
from ssfx.runtime.exchange import Exchange
from ssfx.runtime.parted import fingerprint

_log = logging.getLogger("ssfx")
_UNSAID = 3
"""So many exchanges in a row may lose a residual although the weight moved, before that is an error."""
_numbers = count()


class Commit:
    """The memory of the latest exchange, until its averages were used or are gone.

    `open` names the parameters whose averages were not stepped with; `discarded` counts exchanges some of whose
    averages no step used.
    """

    def __init__(
        self, exchange: Exchange, params: Mapping[str, torch.nn.Parameter], rates: Rates | None, *, speaks: bool
    ) -> None:
        self._exchange, self._params, self._rates, self._speaks = exchange, params, rates, speaks
        self._keeps = exchange.memory is not None and exchange.memory.stateful
        self.open: set[str] = set()
        self.discarded = 0
        self.in_closure = False
        self._looked_in: int | None = None
        self._later: Callable[[], None] | None = None
        self._number = -1
        self._written: dict[str, int] = {}
        """The version counts of the gradients that the exchange wrote, which bear its number."""
        self._versions: dict[str, int] = {}
        """Those of the weights."""
        self._said: set[str] = set()
        """Parameters of which the script has said by `discard` what it cancelled."""
        self._off: set[str] = set()
        """Parameters that the script cancelled when anything of them was last sent."""
        self._lost: dict[str, tuple[int, int]] = {}
        """By weight: after how many exchanges in a row that no step used it had moved, and its bits at the last."""
        self._undone = False
        self._held_back: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        """While an optimizer steps: gradients of an exchange that was undone."""
        self._changed_steps = 0
        self._said_parts = False

    def begin(self, names: set[str]) -> None:
        """The averages of `names` are in `.grad` now."""
        self.open, self._looked_in, self._said, self._undone = names, None, set(), False
        self._number, self._written, self._versions = next(_numbers), {}, {}
        for name in names:  # one pass: a step of a small model is bound by Python
            param = self._params[name]
            self._versions[name] = param._version
            if (grad := param.grad) is not None:
                grad._ssfx_exchange = self._number  # type: ignore[attr-defined]  # a weak reference stops swap_tensors
                self._written[name] = grad._version

    def undo(self, scaler: torch.amp.GradScaler | None, count: int) -> str | None:
        """Let no optimizer step with this exchange; return the reason where it is to be said, the `count`-th time.

        Every gradient is NaN then, on all ranks. What a script leaves of that is no gradient while an optimizer steps,
        so that it leaves the weights alone; what it repairs is the same on all ranks.
        """
        reason = why_not_finite(self._params) if is_round(count) else ""
        for name in self._exchange.exchanged():
            param = self._params[name]
            if param.grad is None:
                param.grad = torch.full_like(param, torch.nan)
            else:
                param.grad.fill_(torch.nan)
        self._undone = True
        if reason or (self._speaks and is_round(count)):
            tip = "; with a GradScaler, give it to attach: attach(..., scaler=scaler)" if scaler is None else ""
            return (reason or "an exchanged number of another rank is not finite") + tip
        return None

    def forget(self) -> None:
        """Another state was loaded; nothing is open and nothing waits."""
        self.open, self._later = set(), None

    def when_settled(self, work: Callable[[], None]) -> None:
        """Do `work` once nothing is open, instead of what waits."""
        self._later = work
        if not self.open:
            self._catch_up()

    def added_to(self, name: str) -> None:
        """A backward pass without an exchange has just added to the gradient of `name`, which is no other change."""
        grad = self._params[name].grad
        if name in self.open and grad is not None and self._changes(name) == 1:
            self._written[name] = grad._version

    def idle(self, params: Iterable[torch.nn.Parameter]) -> bool:
        """Return whether no gradient is there but averages that the latest exchange wrote, and zeros."""
        written = {id(self._params[name]) for name in self._written.keys() & self._params if not self._changes(name)}
        return not any(p.grad is not None and id(p) not in written and bool(p.grad.count_nonzero()) for p in params)

    def before(self, optimizer: torch.optim.Optimizer) -> None:
        """`optimizer` is about to step: what the script has cancelled of its averages will not be committed."""
        for param in self._params.values() if self._undone else ():
            if param.grad is not None and not torch.isfinite(param.grad).all():
                self._held_back.append((param, param.grad))
                param.grad = None
        if not self._keeps:
            return
        held = self._of(optimizer)
        self._lost = {name: lost for name, lost in self._lost.items() if name not in held} if self._lost else {}
        changed = {name for name in held if self._changes(name)} - self._said
        if not changed:
            return
        gone, silent = self._cancelled(changed)
        self._off = (self._off - (held - silent)) | gone
        # A tensor of which nothing was sent goes with all others of its optimizer, or as it did when it last sent.
        whole = bool(gone) and gone | silent == held
        self.open -= gone | (silent if whole else silent & self._off)
        self._changed_steps += 1
        if self._said_parts or (whole and len(held) > 1):
            return
        taken = [name for name in silent if self._params[name].grad is None]
        if taken:
            self._say_cancelled(min(taken))
        elif is_round(self._changed_steps):  # it reads every average
            self._look_for_parts(changed - silent)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Commit what `optimizer` has just stepped with."""
        for param, grad in self._held_back:
            if param.grad is None:
                param.grad = grad
        self._held_back.clear()
        if self.open:  # else it may be another model's, and the exchange of this one under way
            self._commit(self._of(optimizer))

    def used(self, names: Collection[str]) -> None:
        """The script has moved the weights `names` by their averages itself."""
        self._commit(self.open & set(names))

    def look(self, arriving: str | None = None) -> None:
        """Once a backward pass: averages of the exchange before that stand in `.grad` no more are undone.

        `arriving` names the parameter that the pass has added to already. ConfigError where that has happened thrice
        in a row to a weight that moved each time.
        """
        task: int = torch._C._current_graph_task_id()
        if not self.open or (task == self._looked_in and task != -1):
            return
        self._looked_in = task
        gone, silent = self._gone(arriving)
        lost = gone - self._exchange.filled_in
        if lost and not self.in_closure:  # there an optimizer evaluates its closure as often as it likes
            self.discarded += 1
            if self.discarded == 1 and self._keeps and self._speaks:
                _log.warning(
                    "no optimizer stepped with the averaged gradient of %s, and it is gone: its exchange is undone. Use"
                    " sync.no_sync() for passes whose gradients are not used (where gradients are combined: no_sync(), "
                    "then sync.synchronize()), sync.exact() where they are only read, since averages hold residuals "
                    "and zeros that were not sent, sync.used() after the script moves weights itself",
                    min(lost),
                )
        self.open -= set(gone)
        sent = [name for name in gone if name not in silent]
        if not sent or not self._keeps or self.in_closure:
            return
        bits = torch.stack([fingerprint(self._params[name]) for name in sent]).tolist()
        for name, now in zip(sent, bits, strict=True):
            times, before = self._lost.get(name, (0, None))
            moved = self._params[name]._version != self._versions[name] if before is None else now != before
            self._lost[name] = (times + 1 if moved else 0, now)
            if self._lost[name][0] >= _UNSAID:
                raise ConfigError(
                    f"{name} moved after each of {_UNSAID} exchanges in a row, and no optimizer stepped with its "
                    "gradient, so its residual is lost: call sync.used() after the script moves weights by averaged "
                    "gradients, put passes that only perturb weights inside sync.no_sync(), or use scheme=ddp"
                )

    def replaced(self, names: Collection[str]) -> None:
        """Other weights have taken the place of `names`: averages that these had, and were not used, are gone."""
        if names:
            self.open -= set(names)
            if not self.open:
                self._catch_up()

    def settle(self, *, end: bool = False) -> set[str]:
        """Before an exchange: settle the one before it; return the parameters that the new one goes on with.

        Averages that are still in `.grad` are exchanged again with what is added to them: the memory goes on from what
        their exchange left, and both are committed together. A plan that waits, a parameter that was frozen, or `end`
        stops that: then the first exchange counts. Of averages that are gone the memory is as before their exchange.
        """
        if self.open:
            self.look()
        if not self.open:  # thrown away on this rank; others may have a plan to change to
            self._catch_up()
            return set()
        frozen = {name for name in self.open if not self._params[name].requires_grad}
        self._commit(frozen if self._later is None and not end else set(self.open))
        going_on, self.open = self.open, set()
        self._catch_up()
        return going_on

    def discard(self, name: str, where: torch.Tensor | None) -> None:
        """Elements of an average were cancelled by the script (all where `where` is None): none of them is kept."""
        if name in self.open:
            self._exchange.restore(name, where)
            self._said.add(name)
            if where is None:
                self.open.discard(name)

    def _commit(self, names: Collection[str]) -> None:
        if not names:
            return
        held: Any = self._rates.held if self._rates is not None else set()
        with torch.no_grad():
            self._exchange.commit({name for name in names if name not in held} if held else set(names))
        self.open -= set(names)
        for name in self._lost.keys() & names:
            del self._lost[name]
        if not self.open:
            self._catch_up()

    def _catch_up(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            later()

    def _of(self, optimizer: torch.optim.Optimizer) -> set[str]:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return {name for name in self.open if id(self._params[name]) in held}

    def _changes(self, name: str) -> int:
        """Return how often the gradient that was written has been changed in place; -1: it is another tensor."""
        grad = self._params[name].grad
        if grad is None or getattr(grad, "_ssfx_exchange", None) != self._number:
            return -1
        return grad._version - self._written[name]

    def _cancelled(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return those of `names` that sent something, all of which is zero now; and those of which nothing was sent.

        The second are those among them whose gradient is zero or None now, too.
        """
        grads = {name: grad.detach() for name in names if (grad := self._params[name].grad) is not None}
        largest = torch.stack(torch._foreach_norm(list(grads.values()), float("inf"))).tolist() if grads else []
        left = {name for name, value in zip(grads, largest, strict=True) if value}
        zeros = set(names) - left
        silent = {name for name, average in self._exchange.averages(zeros) if not average.any()} if zeros else set()
        return zeros - silent, silent

    def _look_for_parts(self, names: Collection[str]) -> None:
        """Say once where what was sent of a weight, or a part of it, is zero or gone."""
        for name, average in self._exchange.averages(names) if names else ():
            grad, sent = self._params[name].grad, average != 0
            if bool((sent if grad is None else sent & (grad.view_as(average) == 0)).any()):
                self._say_cancelled(name)
                return

    def _say_cancelled(self, name: str) -> None:
        self._said_parts = True
        if self._speaks:
            _log.warning(
                "the script cancelled averages of %s. Where nothing is left of what was sent, its residual is as before"
                " this exchange; of a part, or where nothing was sent, it stays, and is sent later. Name what is not to"
                " be kept by sync.discard(weight, where) after backward; give a gradient to another weight inside "
                "sync.no_sync(), then call sync.synchronize()",
                name,
            )

    def _gone(self, arriving: str | None) -> tuple[set[str], set[str]]:
        """Return the open parameters whose average does not stand in `.grad`, and those of them that sent nothing.

        One that sent nothing, and that of `arriving`, to which the pass has added, go by their tensor: it is another
        one, or was changed while no other that stands was.
        """
        unsure = {arriving} & self.open if arriving is not None else set[str]()
        gone, silent = self._cancelled(self.open - unsure)
        kept = self.open - unsure - gone - silent
        scaled = any(self._changes(name) > 0 for name in kept)
        for name in unsure | silent:
            changes = self._changes(name) - (name == arriving)
            if changes < 0 or (changes > 0 and not scaled) or (gone and not kept):
                gone.add(name)
        return gone, silent & gone


def is_round(count: int) -> bool:
    """Return whether `count` is 1, 10, 100 and so on: how often a repeated event is worth a line."""
    return str(count).rstrip("0") == "1"


def why_not_finite(params: Mapping[str, torch.nn.Parameter]) -> str:
    """Return which of this rank's gradients has numbers that are not finite; "" if none has."""
    for name, param in params.items():
        grad = param.grad
        if grad is None:
            continue
        finite = int(torch.isfinite(grad).sum())
        if finite < grad.numel():
            return f"{grad.numel() - finite} of {grad.numel()} numbers in the gradient of {name} are NaN or infinite"
    return ""
