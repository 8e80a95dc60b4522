"""Commit the residuals of an exchange when its averages were used, or discard them.

The residuals of an exchange count unless there is evidence that its averages were not used. Evidence is, for a weight:
its average is gone from `.grad`, or a script has set it to zeros, and the weight did not move since. An optimizer's
step that torch announces settles the matter at once. A script that moves weights in a way of its own is seen by the
weights: their version counts, or a few of their values, which are copied after every exchange. A move up the averaged
gradient is no use of it: so the first pass of sharpness-aware minimisation climbs before the pass that counts.

A step is undone on every rank where a number that was exchanged is not finite.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from weakref import ref

import torch

from ssfx.compressors.memories.rates import Rates
from ssfx.runtime.exchange import Exchange

_log = logging.getLogger("ssfx")
_PROBE_ELEMENTS = 4096
_HABIT = 8
_FEW = 8


class Commit:
    """The memory of the latest exchange, until all its averages were used or thrown away.

    `open` names the parameters whose averages are still in `.grad` and were not stepped with; `discarded` counts
    exchanges some of whose averages a script threw away.
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
        self._written: dict[str, tuple[ref[torch.Tensor], int]] = {}
        """The gradients that the exchange wrote, with their version counts."""
        self._versions: dict[str, int] = {}
        self._masked: set[str] = set()
        """Parts of their averages were cancelled by `discard`; zeros that are left are no sign that all was."""
        self._probe = Probe(params)

    def begin(self, names: set[str]) -> None:
        """The averages of `names` are in `.grad` now."""
        self.open, self._looked_in, self._masked = names, None, set()
        self._written, self._versions = {}, {}
        for name in names:  # one pass: a step of a small model is bound by Python
            param = self._params[name]
            self._versions[name] = param._version
            if (grad := param.grad) is not None:
                self._written[name] = ref(grad), grad._version
        self._probe.take(frozenset(names))

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
            self._written[name] = (ref(grad), grad._version)

    def idle(self, params: Iterable[torch.nn.Parameter]) -> bool:
        """Return whether no gradient is there but averages that the latest exchange wrote, and zeros."""
        written = {id(self._params[name]) for name in self._written.keys() & self._params if not self._changes(name)}
        return not any(p.grad is not None and id(p) not in written and bool(p.grad.count_nonzero()) for p in params)

    def cancelled(self, optimizer: torch.optim.Optimizer) -> set[str]:
        """Return the open parameters of an optimizer that is about to step whose averages a script has cancelled."""
        if self._as_written():
            return set()
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        mine = {name for name in self.open if id(self._params[name]) in held}
        gone = {name for name in mine if self._params[name].grad is None} | self._zeroed(mine)
        if gone:
            self._commit(self._moved(gone))  # unless the script had moved its weights with them before
        return gone & self.open

    def stepped(self, optimizer: torch.optim.Optimizer, cancelled: Collection[str] = ()) -> None:
        """Commit what `optimizer` has just stepped with; of `cancelled` the memory is as before the exchange."""
        if not self.open:
            return  # it may be another model's, and the exchange of this one under way
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        self.open -= set(cancelled)
        self._commit({name for name in self.open if id(self._params[name]) in held})
        if not self.open:
            self._catch_up()

    def look(self, arriving: str | None = None) -> None:
        """Once a backward pass: what a script has thrown away since the exchange will not be committed.

        `arriving` names the parameter that the pass has added to already.
        """
        task: int = torch._C._current_graph_task_id()
        if not self.open or (task == self._looked_in and task != -1):
            return
        self._looked_in = task
        if not self.in_closure:  # inside of it an optimizer moves weights to and fro
            self._commit(self._moved(self.open))
        gone = self._gone(arriving)
        self.open -= gone
        if gone - self._exchange.filled_in and not self.in_closure:
            self.discarded += 1
            if self.discarded == 1 and self._speaks:
                _log.warning(
                    "averaged gradients were not used: they are gone, and the weights did not move; their residuals "
                    "are discarded. Put a backward pass whose gradients are not used inside sync.no_sync(), which "
                    "saves its exchange"
                )

    def look_at_weights(self) -> None:
        """Commit what a script has moved weights with, if it did so without an optimizer's step."""
        if not self.in_closure:
            self._commit(self._moved(self.open))

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
            self._masked.add(name)
            if where is None:
                self.open.discard(name)

    def _commit(self, names: Collection[str]) -> None:
        if not names:
            return
        held: Any = self._rates.held if self._rates is not None else set()
        with torch.no_grad():
            self._exchange.commit({name for name in names if name not in held} if held else set(names))
        self.open -= set(names)
        if not self.open:
            self._catch_up()

    def _catch_up(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            later()

    # ---- evidence ---------------------------------------------------------------------------------------------------

    def _as_written(self) -> bool:
        """Return whether every average is in `.grad` as the exchange wrote it."""
        params = self._params
        return len(self._written) == len(self._versions) and all(
            name in params
            and (grad := params[name].grad) is written()
            and grad is not None
            and grad._version == version
            for name, (written, version) in self._written.items()
        )

    def _changes(self, name: str) -> int:
        """Return how often the gradient that was written has been changed in place; -1: it is another tensor."""
        grad, written = self._params[name].grad, self._written.get(name)
        if grad is None or written is None or written[0]() is not grad:
            return -1
        return grad._version - written[1]

    def _zeroed(self, names: Collection[str]) -> set[str]:
        """Return those of `names` whose averages are zeros now, and were changed to zeros.

        An average that was written as zeros, since nothing of it was selected, stays zeros when a script scales all
        gradients. It counts as cancelled if it was changed otherwise than all gradients that are no zeros, or all are
        zeros and not all were written as zeros. A change by `.data` shows in the values alone: then what is zeros, and
        was written as zeros, counts as cancelled if all are.
        """
        left = {
            name: self._changes(name)
            for name in self.open
            if (grad := self._params[name].grad) is not None and grad.numel()
        }
        if not left:
            return set()
        grads = [grad.detach() for name in left if (grad := self._params[name].grad) is not None]
        largest = torch.stack(torch._foreach_norm(grads, float("inf"))).tolist()
        zeros = {name for name, value in zip(left, largest, strict=True) if value == 0.0} - self._masked
        if not zeros:
            return set()
        as_written = self._exchange.of_zeros(zeros)
        unseen = any(not left[name] for name in zeros - as_written)
        if not unseen:
            zeros = {name for name in zeros if left[name]}
        others = {changes for name, changes in left.items() if name not in zeros}
        if others:
            alike = {name for name in as_written if left[name] in others}
        else:
            alike = as_written if zeros <= as_written else set()
        return (zeros - alike).intersection(names)

    def _gone(self, arriving: str | None) -> set[str]:
        """Return the open parameters whose average is in `.grad` no more: there is none, or it was changed to zeros.

        A new backward pass may have added to that of `arriving` already: it is gone if it was touched otherwise, or
        others were by `.data`, and no average of another parameter is left.
        """
        left = {name for name in self.open if name != arriving}
        gone = {name for name in left if self._params[name].grad is None}
        gone |= (zeroed := self._zeroed(left - gone))
        if arriving is not None and arriving in self.open and len(gone) == len(left):
            unseen = any(self._changes(name) == 0 for name in zeroed)
            if unseen or self._changes(arriving) != 1:
                gone.add(arriving)
        return gone

    def _moved(self, names: Collection[str]) -> set[str]:
        """Return those of `names` whose weights a script has moved with their averages since the exchange."""
        self._probe.everywhere()  # no optimizer has said that it stepped: from now on every weight is looked at
        touched = {name for name in names if self._params[name]._version != self._versions[name]}
        seen = self._probe.moves(names, self._exchange.averages)
        if not seen:
            return touched  # no average in sight: the version counts alone speak
        if sum(seen.values()) > 0:
            return set()  # up the gradient
        moved, unseen = {name for name, move in seen.items() if move}, set(names) - seen.keys()
        if moved:
            return moved | (unseen & touched if moved & touched else unseen)
        return set() if touched & seen.keys() else unseen & touched  # what was touched in sight stood still


class Probe:
    """Copies of some values of weights, by which it is seen whether and which way a script has moved them.

    Of each weight the first rows, up to 4,096 elements; of eight weights alone once it is the script's habit that torch
    announces its steps.
    """

    def __init__(self, params: Mapping[str, torch.nn.Parameter]) -> None:
        self._params = params
        self._announced = 0
        """So many exchanges in a row were followed by steps that torch announced."""
        self._chosen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        """By name: values in place, and their copies."""
        self._of: tuple[bool, frozenset[str]] = (False, frozenset())

    def everywhere(self) -> None:
        """Look at all weights from the next exchange on."""
        self._announced = 0

    def take(self, names: frozenset[str]) -> None:
        """Copy the values as they are now, at the end of an exchange of `names`."""
        self._announced += 1
        few = self._announced > _HABIT
        if self._of != (few, names) or any(
            live.data_ptr() != self._params[name].data_ptr() for name, (live, _) in self._chosen.items()
        ):
            self._choose(few, names)
        if self._chosen:
            with torch.no_grad():
                torch._foreach_copy_([copy for _, copy in self._chosen.values()], [v for v, _ in self._chosen.values()])

    def moves(
        self, names: Collection[str], averages: Callable[[Collection[str]], Iterator[tuple[str, torch.Tensor]]]
    ) -> dict[str, float]:
        """Return for weights in sight how far they went up (above 0) or down their averaged gradient since `take`.

        0 is a weight that did not move though its average is not zero, and -1 one that moved otherwise. A weight that
        did not move and whose average in sight is zero says nothing, and is left out.
        """
        changes = {}
        for name in names:
            pair, now = self._chosen.get(name), _first_rows(self._params[name])
            if pair is not None and pair[1].shape == now.shape:
                changes[name] = now.double() - pair[1].double()
        if not changes:
            return {}
        largest = torch.stack(torch._foreach_norm(list(changes.values()), float("inf"))).tolist()
        moved = {name for name, most in zip(changes, largest, strict=True) if most}
        found: dict[str, float] = {}
        for name, average in averages(changes):
            mean = _first_rows(average).double()
            if name in moved:
                found[name] = float((changes[name] * mean).sum()) or -1.0
            elif bool(mean.count_nonzero()):
                found[name] = 0.0
        return found

    def _choose(self, few: bool, names: frozenset[str]) -> None:
        there = [name for name, p in self._params.items() if name in names and p.numel()]
        if few:
            there = there[:: -(-len(there) // _FEW) or 1]
        self._chosen = {name: (live := _first_rows(self._params[name]), live.clone()) for name in there}
        self._of = (few, names)


def _first_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the first rows of a tensor, up to 4,096 elements and at least one row; it shares the tensor's memory."""
    values = tensor.detach()
    if values.numel() <= _PROBE_ELEMENTS or values.dim() == 0:
        return values
    return values[: max(1, _PROBE_ELEMENTS * values.shape[0] // values.numel())]


def undo(
    params: Mapping[str, torch.nn.Parameter], scaler: torch.amp.GradScaler | None, count: int, rank: int
) -> str | None:
    """Let no optimizer step with these gradients; return the reason where it is to be said, the `count`-th time.

    With a GradScaler they become NaN on every rank, so that all of them skip. Without one, no gradient means that the
    optimizer leaves every parameter alone.
    """
    reason = why_not_finite(params) if is_round(count) else ""
    for param in params.values():
        if scaler is None:
            param.grad = None
        elif param.grad is not None:
            param.grad.fill_(float("nan"))
    if reason or (rank == 0 and is_round(count)):
        tip = "; with a GradScaler, give it to attach: attach(..., scaler=scaler)" if scaler is None else ""
        return (reason or "an exchanged number of another rank is not finite") + tip
    return None


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
