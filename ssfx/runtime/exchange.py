"""One step's exchange under a plan: gradients in as they arrive, averages out; memory is committed when they are used.

The training thread calls `begin`, `arrive` per gradient and `finish`; offloaded segments are compressed by the host
worker's thread, and exchanges of several phases run in the queue's.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator
from time import perf_counter
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.kernels.narrow import CUT
from ssfx.compressors.memories import Memory
from ssfx.core import accelerator, machine
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan
from ssfx.runtime.hooks import without_graph
from ssfx.runtime.members import Members, listen
from ssfx.runtime.message import ExchangeQueue, Message, Room, StepKey, all_finite
from ssfx.runtime.message_kinds import make_message
from ssfx.runtime.offload import HostWorker
from ssfx.runtime.stats import StepStats, Stopwatch, Tracer
from ssfx.runtime.store import Store

_log = logging.getLogger("ssfx")
_SETTLING_STEPS = 3


class Slot:
    """One parameter and where its gradient goes under the plan in use."""

    __slots__ = (
        "__weakref__",
        "dense",
        "dtype",
        "handle",
        "host",
        "index",
        "message",
        "name",
        "param",
        "segment",
        "shape",
        "waiting",
    )

    def __init__(self, name: str, param: torch.nn.Parameter) -> None:
        self.name = name
        self.param = param
        self.message: Message | None = None  # None: the tensor is empty, or frozen on all ranks since attach
        self.dtype, self.shape = param.dtype, param.shape
        self.index = self.segment = 0
        self.dense = self.host = self.waiting = False
        self.handle: Any = None

    def listen(self, hook: Callable[[torch.Tensor], None]) -> Any:
        """Call `hook` whenever autograd has added to the gradient; return the handle that removes it."""
        self.handle = listen(self.param, hook)
        return self.handle

    def heard_last(self) -> bool:
        """True unless a script's hook, set later, may still change the gradient after the one given to `listen`."""
        hooks: dict[int, Any] = self.param._post_accumulate_grad_hooks
        return bool(next(reversed(hooks)) == self.handle.id)


class Exchange:
    """Executes a plan step by step; `install` may change the plan between steps and keeps the memory."""

    _under_way: ClassVar[WeakValueDictionary[Any, Exchange]] = WeakValueDictionary()
    """The exchange in progress on each process group."""

    def __init__(self, comm: Comm, members: Members, memory: Memory | None, store: Store, tracer: Tracer) -> None:
        self.comm = comm
        self.memory = memory
        self._members = members
        self.slots = {name: Slot(name, param) for name, param in members.params.items()}
        self.messages: list[Message] = []
        self._store = store
        self._tracer = tracer
        self._queued = accelerator.queued(comm.device)
        self._watch = Stopwatch(comm.device, tracer)
        self.queue = ExchangeQueue(comm.device, serial=comm.serial)
        self.host = HostWorker(comm.device, self.queue.fail, serial=comm.serial)
        self.cut_values = 0
        """Finite values of this rank so far that were beyond what 16-bit messages hold; a GPU's are not counted."""
        self._said_cut = False
        self.finite: list[bool] = []  # by message, of the last exchange that was not
        self.filled_in: set[str] = set()
        """What the last pass did not reach, unless that is everything."""
        self._lock = threading.Lock()
        self._hosted: dict[tuple[int, int], dict[str, torch.Tensor | None]] = {}
        self._momenta: dict[str, torch.Tensor] = {}
        """Momentum of tensors that were sent dense, as this step left it."""
        self._resting: set[str] = set()

    def replace(self, came: dict[str, torch.nn.Parameter]) -> list[Slot]:
        """Know weights that came after attach, or took the place of others; return their slots.

        Until the next plan, a weight of another shape is in no message, and zeros are sent for the one before it.
        """
        fresh = [Slot(name, param) for name, param in came.items()]
        for slot in fresh:
            old = self.slots.get(slot.name)
            self.slots[slot.name] = slot
            if old is not None and old.shape == slot.shape:
                slot.message, slot.index, slot.segment = old.message, old.index, old.segment
                slot.dense, slot.host, slot.dtype = old.dense, old.host, old.dtype
                for slots in (self._active, *self._of_message):
                    slots[:] = [slot if one is old else one for one in slots]
        return fresh

    def install(self, plan: Plan, step: int, *, for_a_while: bool = False) -> None:
        """Use `plan` from the next step on, which is number `step`; memory moves over by parameter name.

        `for_a_while`: what the old plan's buffers took is not given back to the system, which costs the first steps
        time. What the last step left and is not committed is lost.
        """
        self.plan = plan
        self._room = Room(self.comm.device)
        self.messages = []
        self.queue.begin([])
        for name in self.slots.keys() - self._members.params.keys() - plan.by_name.keys():
            del self.slots[name]
        for slot in self.slots.values():
            slot.message = None  # so that each old message's buffers go as soon as the new ones hold its memory
        if not for_a_while:
            machine.release_freed()
        self._settling = 0 if for_a_while else _SETTLING_STEPS
        for index, (_, lane) in enumerate(plan.lanes()):
            executor = make_message(lane, plan, self.comm, self.comm.device, self._store, self.memory, step)
            self.messages.append(executor)
            for segment, spec in enumerate(lane.segments):
                for name in spec.tensors:
                    slot = self.slots[name]
                    slot.message, slot.index, slot.segment = executor, index, segment
                    slot.dense, slot.host = spec.dense, spec.placement == "host"
                    slot.dtype = getattr(torch, plan.by_name[name].dtype)
                    slot.shape = torch.Size(plan.by_name[name].shape)
        self._tensor_ids = {name: i for i, name in enumerate(sorted(plan.by_name))}
        self._active = [slot for slot in self.slots.values() if slot.message is not None]
        self._of_message = [[slot for slot in self._active if slot.message is message] for message in self.messages]
        self._contributed = sum(message.nbytes for message in self.messages)

    def begin(self, step: int, seed: int, going_on: Collection[str] = (), *, alarm: bool = False) -> None:
        """Start a step: nothing has arrived yet, and what the last one left uncommitted is forgotten.

        But not that of the tensors in `going_on`, whose averages are in `.grad` and are exchanged again with what is
        added to them. `alarm`: NaN is sent, so that no rank takes this exchange for right (see `members`). ConfigError
        while another exchange uses the process group and a thread issues messages of either: they would mix.
        """
        other = self._under_way.setdefault(self.comm.group, self)
        if other is not self and (self._threaded() or other._threaded()):
            raise ConfigError(
                "two attached models have gradients in this backward pass and were given one process group, in which "
                "their messages would mix; attach without process_group, or give each a group of its own"
            )
        if self._settling:
            # The allocator puts the next gradients where the old plan's buckets were; the last ones' places would stay.
            self._settling -= 1
            machine.release_freed()
        self._watch.reset()
        self._step = step
        key = StepKey(seed, self._tensor_ids)
        self._resting.clear()
        self._momenta = {name: self._momenta[name] for name in self._momenta if name in going_on}
        for message in self.messages:
            message.begin(key, going_on)
        for slot in self._active:
            slot.waiting = True
        self._alarm = alarm
        self._hosted = {}
        self._segments_left = [len(message.lane.segments) for message in self.messages]
        self._events: list[list[torch.Event]] = [[] for _ in self.messages]
        self._sent_before = self.comm.sent.sent_bytes
        self.queue.begin(self.messages, hold=not self.plan.overlap)

    def _not_under_way(self) -> None:
        if self._under_way.get(self.comm.group) is self:
            del self._under_way[self.comm.group]

    def _threaded(self) -> bool:
        hosted = any(segment.placement == "host" for message in self.messages for segment in message.lane.segments)
        return hosted or any(message.blocking for message in self.messages)

    def arrive(self, slot: Slot) -> None:
        """Take one gradient in; the last of a segment compresses it, the last of a message makes the message ready.

        Raises ConfigError when a parameter gets a second gradient in one backward pass: the first one has gone.
        """
        if (message := slot.message) is None:
            return
        if not slot.waiting:
            raise ConfigError(
                f"parameter {slot.name} got two gradients in one backward pass: its layer is checkpointed twice, so "
                "use checkpoint(..., use_reentrant=False), or an autograd.Function that has it among its inputs calls "
                "backward() inside, so return its gradient from there, by torch.autograd.grad"
            )
        slot.waiting = False
        self.queue.poll()
        grad = slot.param.grad
        if grad is not None:
            if grad.layout is not torch.strided:
                raise ConfigError(
                    f"parameter {slot.name} has a {grad.layout} gradient; build its layer with sparse=False"
                )
            if grad.requires_grad:
                grad = grad.detach()  # of backward(create_graph=True)
            if grad.dtype is not slot.dtype and not self._members.arrived(slot.name, grad):
                self._alarm, grad = True, grad.to(slot.dtype)
            if grad.shape != slot.shape:  # no message has room for it until all ranks have planned anew
                self._members.reshaped(slot.name)
                self._alarm, grad = True, None
        if self._alarm and slot.shape.numel():
            self._alarm, grad = False, torch.full(slot.shape, math.nan, dtype=slot.dtype, device=self.comm.device)
        elif slot.name in self._resting:
            message.resting.add(slot.name)
            grad = None
        if slot.host:
            self._arrive_on_host(slot, message, grad)
            return
        if slot.dense:
            message.add(slot.name, grad)
            complete = message.arrived(slot.segment)
        else:
            with self._watch.time("compress", slot.name):
                message.add(slot.name, grad)
                complete = message.arrived(slot.segment)
                if complete:
                    message.compress(slot.segment)
        if complete:
            self._segment_done(slot.index, self._mark())

    def _arrive_on_host(self, slot: Slot, message: Message, grad: torch.Tensor | None) -> None:
        key = (slot.index, slot.segment)
        self._hosted.setdefault(key, {})[slot.name] = grad
        if not message.arrived(slot.segment):
            return
        grads = self._hosted.pop(key)
        work = message.offload(slot.segment, grads, self.host.stream)
        names = ",".join(grads)

        def job() -> None:
            began = perf_counter()
            with torch.no_grad():
                events = work()
            self._tracer.span("compress", began, perf_counter(), "host", names)
            self._segment_done(slot.index, events)

        self.host.submit(job)

    def _mark(self) -> list[torch.Event]:
        return [accelerator.event(self.comm.device)] if self._queued else []

    def _segment_done(self, index: int, events: list[torch.Event]) -> None:
        with self._lock:
            self._events[index] += events
            self._segments_left[index] -= 1
            if self._segments_left[index]:
                return
        self.queue.ready(index, self._events[index])

    def incomplete(self) -> bool:
        """Return whether some gradient of the step has not arrived."""
        return any(slot.waiting for slot in self._active)

    def finish(self) -> bool:
        """Fill in what did not arrive, wait, and write the averages if every exchanged number is finite on all ranks.

        Returns whether it was. If not, gradients are left to the caller. What did not arrive counts as zeros, or as
        what micro-steps under no_sync left in `.grad`; a parameter that is frozen on all ranks rests, with its gradient
        and its memory as they are. The memory is that of before the step until `commit`.
        """
        self._resting |= self._members.resting
        waiting = [slot for slot in self._active if slot.waiting]
        self.filled_in = {slot.name for slot in waiting} if len(waiting) < len(self._active) else set()
        for slot in waiting:
            self.arrive(slot)
        with self._watch.time("wait"):
            self.queue.drain()
            received = []
            for index, message in enumerate(self.messages):
                received.append(message.finish())
                self.queue.ended(index)
                self.cut_values, message.cut_values = self.cut_values + message.cut_values, 0
        self._not_under_way()
        if self.cut_values and not self._said_cut:
            self._said_cut = True
            kept = self.memory is not None and self.memory.stateful
            _log.warning(
                "%d values beyond %g were cut to what float16 holds, and the rest is %s; clip gradients, or send "
                "bfloat16 or float32 (sync.stats()['cut_values'] counts them)",
                self.cut_values,
                CUT,
                "sent in later steps" if kept else "lost, since there is no residual",
            )
        self._sent_bytes = self.comm.sent.sent_bytes - self._sent_before
        with self._watch.time("decompress"):
            finite = bool(all_finite(part for one in received for part in one))
            if finite:
                self._write()
            else:
                self.finite = [bool(all_finite(one)) for one in received]
        return finite

    def exchanged(self) -> set[str]:
        """Return the parameters whose averages the step that just finished wrote."""
        return {slot.name for slot in self._active} - self._resting

    def averages(self, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield names and averages of the last step, before another one begins; each is valid until the next one."""
        with torch.no_grad():
            for message, slots in zip(self.messages, self._of_message, strict=True):
                mine = [slot.name for slot in slots if slot.name in names]
                if mine:
                    message.decode({}, self._room)
                for name in mine:
                    yield name, message.result(name)

    def restore(self, name: str, where: torch.Tensor | None) -> None:
        """Elements of one weight that are not committed yet are kept as before the step (all of them for None)."""
        slot = self.slots[name]
        if slot.message is not None and where is not None:
            slot.message.restore(name, where.reshape(-1))
        if where is None:
            self._momenta.pop(name, None)
        elif (momentum := self._momenta.get(name)) is not None:
            before = self._store.get(name, "momentum")
            momentum[where] = 0.0 if before is None else before.view(momentum.shape)[where]

    def commit(self, names: Collection[str]) -> None:
        """Commit the last step's residuals of `names`; those of others stay as before it."""
        for message in self.messages:
            message.commit(names)
        for name in [name for name in self._momenta if name in names]:
            self._store.put(name, "momentum", self._momenta.pop(name))

    def _write(self) -> None:
        arrived = {
            slot.name: slot.param.grad
            for slot in self._active
            if slot.param.grad is not None and not slot.param.grad.requires_grad and slot.name not in self._resting
        }
        grads: list[torch.Tensor] = []
        results: list[torch.Tensor] = []
        for message, slots in zip(self.messages, self._of_message, strict=True):
            written = message.decode(arrived, self._room)
            for slot in slots:
                if slot.name in written or slot.name in self._resting:
                    continue
                param, result = slot.param, message.result(slot.name)
                if slot.dense and self.memory is not None and self.memory.dense_momentum:
                    self._momenta[slot.name] = momentum = self._momentum(slot.name, result)
                    self.memory.dense_update(result.view(-1), momentum.view(-1))
                if param.grad is None:
                    param.grad = result.to(slot.dtype, copy=True)
                elif param.grad.requires_grad:
                    param.grad = without_graph(param, result.to(slot.dtype))
                else:
                    grads.append(param.grad)
                    results.append(result)
            if message.in_room and grads:
                torch._foreach_copy_(grads, results)
                grads, results = [], []
        if grads:
            torch._foreach_copy_(grads, results)

    def _momentum(self, name: str, like: torch.Tensor) -> torch.Tensor:
        before = self._momenta.get(name, self._store.get(name, "momentum"))
        if before is None:
            return torch.zeros(like.shape, dtype=torch.float32, device=like.device)
        return before.clone()

    def stats(self, skipped: bool) -> StepStats:
        """Return what the step that just finished did."""
        spans = self.queue.spans
        for message, (start, end) in zip(self.messages, spans, strict=True):
            self._tracer.span("exchange", start, end, "network", f"{message.lane.collective} {message.nbytes} B")
        elements, tensors = sum(spec.numel for spec in self.plan.tensors), len(self.plan.tensors)
        return StepStats(
            self._step,
            skipped,
            self._contributed,
            self._sent_bytes,
            self.queue,
            self._watch,
            self.messages,
            elements,
            tensors,
        )

    def close(self) -> None:
        """Stop the threads and free the buffers; the memory in the store stays."""
        self.host.close()
        self.queue.close()
        self._not_under_way()
        self.messages = []
        for slot in self.slots.values():
            slot.message = None
