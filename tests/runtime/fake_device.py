"""A device that exists only in bookkeeping: tensors stay on the CPU, streams and events are clocks, races are found.

Everything the runtime knows of devices comes from `ssfx.core.accelerator`, so this stands in for that module. Work
really runs at once, which gives right values; what a GPU would be free to run in another order is found as a race: two
accesses to the same bytes, one of them a write, that no wait orders. Every stream has a vector clock (what it has seen
of the others), an event is a copy of a clock, and the threads of the host share one, so that what Python's locks order
counts as ordered. Memory belongs to the stream that it was made on: once nobody holds it, that stream may give it away,
and what another stream still does with it is a race, too. NCCL keeps what it works on, and the allocator of pinned
memory what is copied. Not seen: what compiled kernels touch (tests run the plain-torch path).
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ssfx.collectives.comm import Comm
from ssfx.compressors.kernels import plain_torch
from ssfx.core import accelerator, lazy
from ssfx.runtime.offload import HostWorker

Clock = dict[str, int]
_HOST = "host"
_WAITS_FOR_DEVICE = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::unique_consecutive"}

use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many hold a storage, by torch's private count; where torch has none, memory given away too early is not seen."""
_THREADS = {
    ("step.py", "_hook"): "training",
    ("step.py", "_end_of_graph"): "training",
    ("message.py", "_run"): "exchange",
    ("exchange.py", "job"): "host",
}
"""Where a thread of a backward pass comes from, and what it is called."""


def _join(clock: Clock, other: Clock) -> None:
    for name, at in other.items():
        clock[name] = max(clock.get(name, 0), at)


@dataclass
class Stream:
    """What stands in for a stream; `clock` says which work of which stream is done before its next."""

    fake: FakeDevice
    name: str
    clock: Clock = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def wait_stream(self, other: Stream) -> None:
        if self.fake.kept("wait_stream"):
            _join(self.clock, other.clock)

    def wait_event(self, event: Event) -> None:
        if self.fake.kept("wait_event"):
            _join(self.clock, event.clock)


@dataclass
class Event:
    """A moment of a stream."""

    fake: FakeDevice
    clock: Clock
    at_s: float = field(default_factory=perf_counter)

    def synchronize(self) -> None:
        self.fake.waited()
        if self.fake.kept("synchronize"):
            _join(self.fake.host, self.clock)


@dataclass
class _Memory:
    """A tensor's memory: the stream that it was made on, and when which stream used it last."""

    storage: torch.UntypedStorage
    owner: Stream
    used: Clock = field(default_factory=dict)


@dataclass
class _Access:
    lo: int
    hi: int
    stream: str
    at: int
    writes: bool
    where: str


class _Work:
    """A collective under way on the network's stream: waiting for it makes the waiter's stream wait."""

    def __init__(self, fake: FakeDevice, real: Any, clock: Clock) -> None:
        self._fake, self._real, self._clock = fake, real, clock

    def wait(self) -> None:
        self._real.wait()
        if self._fake.kept("work.wait", outside="comm.py"):
            _join(self._fake.current().clock, self._clock)

    def is_completed(self) -> bool:
        return bool(self._real.is_completed())


class FakeDevice(TorchDispatchMode):
    """Used as a context around training on this thread; `races` then says what may go wrong.

    `removed`: places (see `places`) whose wait is left out, as if somebody had deleted the line.
    """

    def __init__(self, removed: Collection[str] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.removed = removed
        self.places: set[str] = set()
        self.races: list[str] = []
        self.waits: Counter[tuple[str, str]] = Counter()
        """How often the host waited for the device within a backward pass, by thread and place."""
        self.host: Clock = {}
        self.default = Stream(self, "default")
        self.network = Stream(self, "network")
        self._made = 0
        self._local = threading.local()
        self._lock = threading.RLock()
        self._accesses: dict[int, list[_Access]] = {}
        self._alive: list[Any] = []
        self._memory: dict[int, _Memory] = {}
        self._shared: set[int] = set()
        """Where memory is that another stream than its owner has used."""
        self._on_host: set[int] = set()
        self._patches: list[Any] = []

    # ---- what stands in for ssfx.core.accelerator ----------------------------------------------------------------

    def kept(self, kind: str, outside: str = "") -> bool:
        """Note the line of the package that waits; return whether it is still there."""
        frame: Any = sys._getframe(1)
        while "/ssfx/" not in frame.f_code.co_filename or (outside and frame.f_code.co_filename.endswith(outside)):
            frame = frame.f_back
            if frame is None:
                return True
        place = f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname} {kind}"
        self.places.add(place)
        return place not in self.removed

    def waited(self) -> None:
        """Note the line of the package that makes the host wait, unless it plans or no backward pass is under way."""
        place, frame = "", sys._getframe(1)
        while frame is not None:
            file, name = Path(frame.f_code.co_filename), frame.f_code.co_name
            if "/ssfx/" in str(file):
                if "kernels" in file.parts:  # plain torch, in the place of Triton's kernels, which wait for nothing
                    return
                place = place or f"{file.parent.name}/{file.name} {frame.f_code.co_qualname}"
                if file.name == "planner.py":
                    return
                if (file.name, name) in _THREADS:
                    self.waits[_THREADS[file.name, name], place] += 1
                    return
            frame = frame.f_back  # type: ignore[assignment]

    def current(self) -> Stream:
        return getattr(self._local, "stream", self.default)

    def stream(self, device: torch.device) -> Stream:
        self._made += 1
        return Stream(self, f"stream {self._made}")

    @contextmanager
    def working_on(self, stream: Stream) -> Iterator[None]:
        if not self.kept("working_on"):
            stream = self.current()
        before, self._local.stream = self.current(), stream
        try:
            with self.listening():
                yield
        finally:
            self._local.stream = before

    def event(self, device: torch.device, *, timed: bool = False, stream: Stream | None = None) -> Event:
        here = stream or self.current()
        if timed or self.kept("event"):
            return Event(self, {**here.clock})
        return Event(self, {})

    def seconds(self, start: Event, end: Event) -> float:
        self.waited()
        return end.at_s - start.at_s

    def wait(self, device: torch.device) -> None:
        self.waited()
        for stream in (self.default, self.network, self.current()):
            _join(self.host, stream.clock)

    def pinned(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        made = torch.zeros(size, dtype=dtype)
        self._keep(made)
        self._on_host.add(made.untyped_storage().data_ptr())
        return made

    # ---- what is touched --------------------------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Operations of this thread are seen inside."""
        if getattr(self._local, "listens", False):
            yield
            return
        self._local.listens = True
        try:
            with self:
                yield
        finally:
            self._local.listens = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        out = func(*args, **kwargs)
        if schema.name.startswith("c10d::") or any(r.alias_info and not r.alias_info.is_write for r in schema.returns):
            return out
        given = [*zip(schema.arguments, args, strict=False)]
        given += [(argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs]
        touched = [
            (tensor, bool(argument.alias_info and argument.alias_info.is_write))
            for argument, value in given
            for tensor in _tensors(value)
        ]
        fresh = [] if any(r.alias_info for r in schema.returns) else list(_tensors(out))
        with self._lock:
            on_host = bool(touched) and all(self._storage(t) in self._on_host for t, _ in touched)
            if on_host:
                for tensor in fresh:
                    self._keep(tensor)
                    self._on_host.add(self._storage(tensor))
            stream = None if on_host else self.current()
            for tensor in fresh if stream is not None else ():
                storage = tensor.untyped_storage()
                self._memory[storage.data_ptr()] = _Memory(storage, stream)
            self._run(stream, [*touched, *((t, True) for t in fresh)], schema.name)
            crosses = schema.name == "aten::copy_" and len({self._storage(t) in self._on_host for t, _ in touched}) > 1
            blocks = crosses and not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
            if stream is not None and (blocks or schema.name in _WAITS_FOR_DEVICE):
                self.waited()
                _join(self.host, stream.clock)
        return out

    def _storage(self, tensor: torch.Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    def _keep(self, tensor: torch.Tensor) -> None:
        self._alive.append(tensor.untyped_storage())  # so that no other tensor gets its address

    def _run(self, stream: Stream | None, touched: list[tuple[torch.Tensor, bool]], what: str) -> None:
        """Work that touches these tensors is queued on a stream, or done by the host where it is None."""
        name, clock = (stream.name, stream.clock) if stream is not None else (_HOST, self.host)
        _join(clock, self.host)
        if stream is not None:
            self._given_away(stream)
        clock[name] = at = clock.get(name, 0) + 1
        for tensor, writes in touched:
            if not tensor.numel():
                continue
            self._keep(tensor)
            if (memory := self._memory.get(self._storage(tensor))) is not None and stream not in (None, self.network):
                memory.used[name] = at
                if stream is not memory.owner:
                    self._shared.add(self._storage(tensor))
            size = tensor.element_size()
            lo = int(tensor.storage_offset()) * size
            hi = lo + size * int(1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)))
            before = self._accesses.setdefault(self._storage(tensor), [])
            for old in before:
                apart = old.hi <= lo or hi <= old.lo or old.stream == name or not (writes or old.writes)
                if not apart and clock.get(old.stream, 0) < old.at:
                    self.races.append(f"{what} on {name} after {old.where} on {old.stream}")
            before[:] = [
                old
                for old in before
                if not (old.stream == name and lo <= old.lo and old.hi <= hi and writes >= old.writes)
            ]
            before.append(_Access(lo, hi, name, at, writes, what))

    def _given_away(self, owner: Stream) -> None:
        """What nobody holds of the memory of `owner` may be what its next work writes to."""
        for address in [*self._shared] if use_count is not None else []:
            memory = self._memory[address]
            if memory.owner is not owner or use_count(memory.storage._cdata) > 1:
                continue
            self._shared.discard(address)
            late = [name for name, at in memory.used.items() if owner.clock.get(name, 0) < at]
            self.races += [f"memory of {owner.name} was given away before {name} was done with it" for name in late]

    def exchanged(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of Comm whose message is read and written on the network's stream."""

        def issue(comm: Comm, *args: Any, **kwargs: Any) -> Any:
            pending = method(comm, *args, **kwargs)
            with self._lock:
                _join(self.network.clock, self.current().clock)
                reads = [*args[0].values()] if method.__name__ == "swap" else [args[0]]
                into = [*args[1].values()] if method.__name__ == "swap" else [pending.result]
                touched = [(tensor, False) for tensor in reads] + [(tensor, True) for tensor in into]
                self._run(self.network, touched, method.__name__)
                if pending.work is not None:
                    pending.work = _Work(self, pending.work, {**self.network.clock})
            return pending

        return issue

    def read(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of tensors that brings all elements to the host, which waits for them."""

        def fetch(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self._storage(tensor) not in self._on_host:
                    self._run(self.current(), [(tensor, False)], method.__name__)
                    self.waited()
                    _join(self.host, self.current().clock)
            return method(tensor, *args, **kwargs)

        return fetch

    def host_unless_said(self, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a maker of tensors: what the package makes without naming a device is on the host."""

        def made(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            if "device" not in kwargs and "/ssfx/" in sys._getframe(1).f_code.co_filename:
                with self._lock:
                    self._keep(tensor)
                    self._on_host.add(self._storage(tensor))
                    self._accesses.pop(self._storage(tensor), None)
                    self._memory.pop(self._storage(tensor), None)
            return tensor

        return made

    @contextmanager
    def training(self) -> Iterator[None]:
        """Inside, this device is what the runtime finds, and this thread's work is seen."""
        fakes: dict[str, Any] = {
            "queued": lambda device: True,
            "stream": self.stream,
            "current_stream": lambda of: self.current(),
            "working_on": self.working_on,
            "name": lambda device: "fake",
            "event": self.event,
            "wait": self.wait,
            "pinned": self.pinned,
            "seconds": self.seconds,
        }
        submit = HostWorker.submit

        def listened(worker: HostWorker, work: Callable[[], None]) -> None:
            def job() -> None:
                with self.listening():
                    work()

            submit(worker, job)

        patches = [mock.patch.object(accelerator, name, fake) for name, fake in fakes.items()]
        patches.append(mock.patch.object(HostWorker, "submit", listened))
        for name in ("all_reduce", "all_gather", "broadcast", "swap"):
            patches.append(mock.patch.object(Comm, name, self.exchanged(getattr(Comm, name))))
        for name in ("tolist", "cpu", "numpy"):
            patches.append(mock.patch.object(torch.Tensor, name, self.read(getattr(torch.Tensor, name))))
        makers = {name: self.host_unless_said(getattr(torch, name)) for name in ("tensor", "zeros", "ones")}
        patches += [mock.patch.object(torch, name, maker) for name, maker in makers.items()]
        patches.append(mock.patch.dict(lazy.torch.__dict__, makers))  # it remembers what it was asked for
        for patch in patches:
            patch.start()
        try:
            with plain_torch(), self.listening():
                yield
        finally:
            for patch in reversed(patches):
                patch.stop()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
