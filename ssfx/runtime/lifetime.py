"""How long an exchange is on its model, and how long ranks take part in it.

One exchange at a time is on a model, alone until there is a process group, freed when dropped. A script that makes one
model after another (a search, a test, a notebook) forgets `detach`. Model, optimizer and exchange refer to one another,
so they go when Python collects garbage, on each rank at a moment of its own.

Ranks tell each other outside of the exchange that they have left, or that they load a state. A rank that waits in an
exchange for another one that will never come would wait for the transport's time-out, half an hour by default. Who
waits for a second looks whether there is a note.

Ranks may have unequal numbers of batches: who has no more takes part with zeros until all are done. The protocol is
torch's: `with Join([sync]):` around the loop, or `with sync.join():`.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, ClassVar
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError, RunError
from ssfx.runtime.checks import agree, check_agreed, difference, optimizer_facts
from ssfx.runtime.exchange import Exchange
from ssfx.runtime.message import ExchangeQueue
from ssfx.runtime.offload import HostWorker

_log = logging.getLogger("ssfx")
_PATIENCE_S, _BEFORE_S = 60.0, 3.0
"""Seconds after which a rank says for whom it waits, at most; and before a time-out ends its wait."""
_REFUSED = "refused"
_LOAD_ADVICE = "load on every rank what that rank saved after the same step"


class Peers:
    """The notes of one exchange; made on all ranks at the same time.

    `exchanges` counts the exchanges that this rank has ended; its owner keeps it up to date.
    """

    _all: ClassVar[WeakSet[Peers]] = WeakSet()

    def __init__(self, comm: Comm) -> None:
        self.exchanges = 0
        self._comm, self._rank = comm, comm.first + comm.rank
        self._loads = 0
        self._waits_in, self._since_s, self._said = -1, 0.0, False
        self._left = False
        self._notes = comm.notes
        self._name = f"ssfx/{agree(comm, lambda: uuid4().hex)}"
        self._process = os.getpid()
        if not Peers._all:
            atexit.unregister(_at_exit)
            atexit.register(_at_exit)
        Peers._all.add(self)

    def look(self) -> None:
        """Raise RunError if another rank will never take part in the exchange that this one waits for."""
        if (left := self._gone()) is not None:
            raise RunError(
                f"rank {left['rank']} {left['why']} after {left['exchanges']} exchanges, and rank {self._rank} "
                f"waits for it in exchange {self.exchanges + 1}; give all ranks as many batches, or train inside "
                "`with sync.join():`"
            )
        load = self._read(f"load{self._loads + 1}")
        if load is not None and load["exchanges"] <= self.exchanges:
            why = "went on training and loaded no state"
            self.leave(why)
            raise RunError(
                f"rank {load['rank']} loads a state after {load['exchanges']} exchanges, and rank {self._rank} "
                f"{why}; {_LOAD_ADVICE}"
            )
        if not self._comm.serial:
            self._name_who_is_missing()

    def _name_who_is_missing(self) -> None:
        """Note that this rank waits; say, once an exchange, for whom, and raise RunError just before the time-out."""
        comm, now_s = self._comm, time.monotonic()
        if self._waits_in != self.exchanges:
            self._waits_in, self._since_s, self._said = self.exchanges, now_s, False
            self._write(f"in/{comm.rank}", {"exchanges": self.exchanges})
        waited_s, most_s = now_s - self._since_s, comm.timeout_s
        ends = waited_s > most_s - min(_BEFORE_S, most_s / 4)
        if not ends and (self._said or waited_s < min(_PATIENCE_S, most_s / 4, comm.others_s / 4)):
            return
        notes = {rank: self._read(f"in/{rank}") for rank in range(comm.world_size)}
        away = [rank for rank, note in notes.items() if note is None or note["exchanges"] < self.exchanges]
        shown = [str(comm.first + rank) for rank in away[:8]]
        named = f"rank{'s' if len(away) > 1 else ''} {', '.join(shown)}"
        said = (
            f"rank {self._rank} has waited {waited_s:.0f} s in exchange {self.exchanges + 1} for {named}, which did "
            "not come to it; every rank must exchange as often, or train inside `with sync.join():`"
        )
        if ends and away:
            raise RunError(said)
        first = min(notes.keys() - set(away), default=comm.rank)
        if away and comm.rank == first and not self._said:
            _log.warning("%s", said)
        self._said = True

    def _gone(self) -> dict[str, Any] | None:
        """Return the note of the first rank that left and is missed, None if there is none."""
        if (first := self._read("left")) is None:
            return None
        notes = [first] if first["exchanges"] <= self.exchanges else map(self._note_of, range(self._comm.world_size))
        return next((note for note in notes if note is not None and note["exchanges"] <= self.exchanges), None)

    def _note_of(self, rank: int) -> dict[str, Any] | None:
        return self._read(f"left/{rank}")

    def leave(self, why: str) -> None:
        """Write for the others, once, that this rank takes part in no further exchange."""
        if not self._left:
            self._left = True
            note = {"rank": self._rank, "why": why, "exchanges": self.exchanges}
            self._write(f"left/{self._comm.rank}", note)
            self._notes.write_first(f"{self._name}/left", json.dumps(note))

    def close(self, why: str) -> None:
        """Leave for good."""
        if self in Peers._all:
            Peers._all.discard(self)
            self.leave(why)

    @contextmanager
    def loading(self) -> Iterator[dict[str, str]]:
        """Return, once every rank is here, if the facts that they put in are the same.

        ConfigError on all ranks if they are not, or if one of them could not read its state. RunError if a rank goes on
        training instead, or does not come before the patience of its notes.
        """
        self._loads += 1
        note = f"load{self._loads}"
        facts: dict[str, str] = {}
        try:
            yield facts
        except ConfigError as error:
            self._write(f"{note}/{self._comm.rank}", {_REFUSED: str(error)})
            raise
        self._write(f"{note}/{self._comm.rank}", facts)
        self._write(note, {"rank": self._rank, "exchanges": self.exchanges})
        everyone = [self._wait_for(f"{note}/{rank}", rank) for rank in range(self._comm.world_size)]
        for rank, others in enumerate(everyone):
            if _REFUSED in others:
                raise ConfigError(f"nothing was loaded, because rank {rank} cannot load its state: {others[_REFUSED]}")
        if text := difference(everyone):
            raise ConfigError(f"the states that ranks load do not go together: {text}; {_LOAD_ADVICE}")

    def _wait_for(self, key: str, rank: int) -> dict[str, Any]:
        end = time.monotonic() + self._notes.timeout_s
        while (note := self._read(key)) is None:
            if (left := self._note_of(rank)) is not None:
                raise RunError(f"rank {rank} {left['why']}, and rank {self._comm.rank} loads a state; {_LOAD_ADVICE}")
            if time.monotonic() > end:
                raise RunError(f"rank {rank} did not call load_state_dict; {_LOAD_ADVICE}")
            self._notes.pause()
        return note

    def _write(self, key: str, note: dict[str, Any]) -> None:
        self._notes.write(f"{self._name}/{key}", json.dumps(note))

    def _read(self, key: str) -> dict[str, Any] | None:
        text = self._notes.read(f"{self._name}/{key}")
        note: dict[str, Any] | None = json.loads(text) if text is not None else None
        return note


def _at_exit() -> None:
    raised = getattr(sys, "last_value", None)
    why = f"ended with {type(raised).__name__}" if raised is not None else "ended"
    for peers in list(Peers._all):
        if peers._process != os.getpid():  # a child that was forked
            continue
        try:
            peers.close(why)
        except Exception:  # the store may have gone first, and then the note is never read
            continue


class Uneven(Joinable):
    """What torch's `Join` needs of an exchange; `ended_here` is True while this rank has no more batches."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_here = False
        self.divides_by_active = False

    def join(
        self: Any,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[Any]:
        """Return the context for a loop whose number of batches differs by rank; arguments as of DDP's `join`."""
        if self.comm.world_size == 1:
            return nullcontext()
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self: Any, **arguments: Any) -> JoinHook:
        """Return what a rank does that has no more batches: it exchanges zeros and steps until all ranks are done.

        Averages are over all ranks as before, or, with `divide_by_initial_world_size=False`, over those that still
        train. In the end every rank has the parameters, buffers and optimizer states of the last one that trained;
        ConfigError if optimizers are set differently then, and for arguments that DDP's `join` does not have.
        """
        if self.comm.serial:
            raise ConfigError("join() needs real ranks; give all virtual ranks as many batches")
        if unknown := arguments.keys() - {"divide_by_initial_world_size"}:
            raise ConfigError(f"join takes no {', '.join(sorted(unknown))}; it takes divide_by_initial_world_size")
        self.divides_by_active = not arguments.get("divide_by_initial_world_size", True)
        return _Joined(self)

    def share_of_active(self: Any) -> float:
        """Return what averages over all ranks are multiplied by to be averages over the ranks that still train."""
        active = torch.tensor([float(not self.ended_here)], dtype=torch.float32, device=self.comm.device)
        return float(self.comm.world_size / self.comm.all_reduce(active).wait())

    @property
    def join_device(self: Any) -> torch.device:
        """The device of the exchange."""
        device: torch.device = self.comm.device
        return device

    @property
    def join_process_group(self: Any) -> Any:
        """The process group of the exchange."""
        return self.comm.group

    def take_part(self) -> None:
        """Tell ranks that have no more batches that an exchange begins; nothing outside of `join`."""
        if self._join_config.enable and not self.ended_here:
            work = Join.notify_join_context(self)
            if work is not None:
                work.wait()


class _Joined(JoinHook):
    def __init__(self, sync: Any) -> None:
        self._sync = sync

    def main_hook(self) -> None:
        """One exchange and one step without a batch."""
        sync = self._sync
        sync.ended_here = True
        for group in (group for optimizer in sync.optimizers for group in optimizer.param_groups):
            for p in group["params"]:
                p.grad = None
        sync.synchronize()
        _step_all(sync.optimizers, sync.scaler, sync.comm.device)

    def post_hook(self, is_last_joiner: bool) -> None:
        """All ranks have what the last one has that trained."""
        sync = self._sync
        sync.ended_here = sync.divides_by_active = False
        comm, optimizers = sync.comm, sync.optimizers
        source = torch.tensor([comm.rank if is_last_joiner else -1], device=comm.device)
        comm.all_reduce(source, op="max").wait()
        advice = "set them alike before the join context ends, as with a schedule that steps once an epoch"
        check_agreed(comm, optimizer_facts(optimizers), advice)
        sync.broadcast_from(int(source), list(_states(optimizers)))


def _step_all(
    optimizers: Sequence[torch.optim.Optimizer], scaler: torch.amp.GradScaler | None, device: torch.device
) -> None:
    """Step every optimizer, through the GradScaler if there is one."""
    for optimizer in optimizers:
        if scaler is None:
            optimizer.step()
        else:
            scaler.scale(torch.zeros((), dtype=torch.float32, device=device))  # makes its scale, if no batch did
            scaler.step(optimizer)
    if scaler is not None:
        scaler.update()


def _states(optimizers: Sequence[torch.optim.Optimizer]) -> Iterable[torch.Tensor]:
    for optimizer in optimizers:
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            for _, value in sorted(optimizer.state.get(p, {}).items()):
                if isinstance(value, torch.Tensor):
                    yield value


_attached: WeakKeyDictionary[torch.nn.Module, Callable[[], Iterable[torch.nn.Parameter]] | None] = WeakKeyDictionary()
"""Models with an exchange, and what returns the parameters that it covers; None: all of the model's."""


def check_free(model: torch.nn.Module) -> None:
    """Raise ConfigError if an exchange is attached to `model`, or to another one that has a weight of it."""
    if model in _attached:
        raise ConfigError("this model has an exchange attached already; detach() that one first")
    taken = {id(p) for p in attached_parameters()}
    for name, p in model.named_parameters():
        if p.requires_grad and id(p) in taken:
            raise ConfigError(
                f"parameter {name} is in another model that has an exchange attached, and would be averaged twice; "
                "attach once, to a ModuleList of both models"
            )


def claim_model(model: torch.nn.Module, covered: Callable[[], Iterable[torch.nn.Parameter]] | None = None) -> None:
    """Note that an exchange is attached to `model`, for all its parameters or those that `covered` returns."""
    _attached[model] = covered


def release_model(model: torch.nn.Module) -> None:
    """Note that `model` is free again."""
    _attached.pop(model, None)


def attached_parameters() -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of all models to which an exchange is attached, as far as it covers them."""
    for model, covered in list(_attached.items()):
        yield from model.parameters() if covered is None else covered()


def arrived(sync: ref[Any], slot: ref[Any], parameter: torch.nn.Parameter) -> None:
    """Hand a gradient to its exchange; ConfigError where that was dropped, and no other one covers the weight."""
    if (there := sync()) is not None:
        if (place := slot()) is not None:
            there._hook(place)
    elif dist.is_initialized() and all(p is not parameter for p in attached_parameters()):
        raise ConfigError(
            "the exchange of this weight is gone, as nothing kept what was attached, and its gradients would stay on "
            "this rank; keep the handle, sync = ssfx.attach(...), and end it by sync.detach()"
        )


class LoneRank:
    """Watches an exchange that was attached without a process group for a group of several ranks that comes later.

    ConfigError in the first backward pass, or in any step of an optimizer, once there is such a group.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], optimizers: Iterable[torch.optim.Optimizer], process_group: Any
    ) -> None:
        self._handles: list[Any] = []
        self._first: list[Any] = []
        if process_group is not None or dist.is_initialized():
            return
        self._first = [p.register_post_accumulate_grad_hook(lambda _: self._check()) for p in params]
        self._handles = [optimizer.register_step_pre_hook(lambda *_: self._step()) for optimizer in optimizers]

    def _check(self) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigError(
                "the process group was made after ssfx.attach, which therefore exchanges nothing; "
                "call torch.distributed.init_process_group before ssfx.attach"
            )

    def _step(self) -> None:
        self._check()
        _remove(self._first)

    def close(self) -> None:
        """Stop watching."""
        _remove(self._first)
        _remove(self._handles)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


def when_dropped(sync: object, exchange: Exchange, peers: Peers) -> finalize[..., Any]:
    """Return what ends the threads of `sync` and frees its process group once nothing refers to it any more."""
    ending = finalize(sync, _let_go, os.getpid(), exchange.queue, exchange.host, exchange.comm, peers)
    ending.atexit = False  # a process that ends says so to its peers itself
    return ending


def _let_go(process: int, queue: ExchangeQueue, host: HostWorker, comm: Comm, peers: Peers) -> None:
    if process != os.getpid():  # a child that was forked, and has none of the threads
        return
    idle = queue.idle
    queue.stop()
    host.close(wait=False)
    with suppress(Exception):  # the store may have gone first, and then the note is never read
        peers.close("has dropped its model")
    if idle:  # else a peer may still be sending, and the next exchange would take that for its own
        comm.release()
