"""LocalComm: exchanges in memory between ranks of one process, the virtual ranks of a World.

What real ranks over gloo get, virtual ranks get in every bit: sums are added in gloo's order (`ring_sum`), everything
else moves bytes. Bytes and messages are counted as those of real ranks. Ranks take turns (`turns`), so the time of an
exchange means nothing.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ssfx.collectives.comm import Comm, Notes, Pending
from ssfx.collectives.turns import Turns
from ssfx.core.errors import ConfigError, RunError, SsfxError
from ssfx.core.lazy import torch

_here = threading.local()


def own_comm() -> LocalComm | None:
    """Return that of the virtual rank whose thread this is; None where no virtual ranks run.

    ConfigError in another thread while they do: it may be one that a rank has started.
    """
    comm: LocalComm | None = getattr(_here, "comm", None)
    if comm is None and World.running:
        raise ConfigError("virtual ranks run, and this thread is of none of them; give attach the rank's comm=comm")
    return comm


_Channel = tuple[int, int]
"""The number of a Comm, and its first rank."""


class World:
    """P ranks of one process. `run(work)` calls work(comm) for each, and returns what they return, by rank.

    An error of a rank stops all others and is raised once, with its number; no thread is left then.
    """

    running: ClassVar[int] = 0
    """How many are in `run`."""

    def __init__(self, size: int, device: torch.device | None = None) -> None:
        self.size = size
        self.device = device if device is not None else torch.device("cpu")
        self.turns = Turns(size, self.device)
        self.notes: dict[str, str] = {}
        self.object: Any = None
        """What rank 0 shares."""
        self.channels = [0] * size
        """How many Comms of a model each rank has asked for."""
        self.meetings: dict[tuple[_Channel, int], _Meeting] = {}
        """Collectives that some rank has issued and not all, by channel and number."""
        self.mail: dict[tuple[_Channel, int, int, int], torch.Tensor] = {}
        """Messages that were sent and not received, by channel, sender, receiver and number."""
        self.owners: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self.looks: list[list[Callable[..., None]]] = [[] for _ in range(size)]
        """By rank, called when it begins an exchange of a model; they raise if something is not as it must be."""

    def give(self, model: torch.nn.Module, rank: int) -> None:
        """The model is that of virtual rank `rank`; ConfigError where it is another one's."""
        if (owner := self.owners.setdefault(model, rank)) != rank:
            raise ConfigError(
                f"virtual ranks {owner} and {rank} attach to one model; build one of each rank in the function that "
                "virtual_ranks calls"
            )

    def run(self, work: Callable[[Comm], Any]) -> list[Any]:
        """Return the results by rank; an error of ssfx as one of its kind, any other as RunError."""

        def as_rank(rank: int) -> Any:
            _here.comm = LocalComm(self, rank, self.device)
            return work(_here.comm)

        World.running += 1
        try:
            results = self.turns.run(as_rank)
        finally:
            World.running -= 1
        if self.turns.failure is None:
            return results
        rank, error = self.turns.failure
        if not isinstance(error, Exception):
            raise error
        if isinstance(error, SsfxError):
            raise type(error)(f"virtual rank {rank}: {error}") from error
        raise RunError(f"virtual rank {rank} raised {type(error).__name__}: {error}") from error


class _Meeting:
    """A collective, until all ranks have come to it and it is done."""

    def __init__(self, size: int) -> None:
        self.tensors: list[torch.Tensor | None] = [None] * size
        self.facts: list[tuple[Any, ...]] = [()] * size
        self.results: list[torch.Tensor] | None = None

    def missing(self) -> list[int]:
        return [rank for rank, tensor in enumerate(self.tensors) if tensor is None]


class _Work:
    """What is waited for: `done` says whether it is there, `missing` which ranks are waited for; `land` takes it in."""

    def __init__(
        self,
        comm: LocalComm,
        what: str,
        done: Callable[[], bool],
        missing: Callable[[], list[int]],
        land: Callable[[], None],
    ) -> None:
        self._comm, self._what, self._done, self._missing, self._land = comm, what, done, missing, land

    def is_completed(self) -> bool:
        return self._done()

    def wait(self) -> None:
        comm = self._comm
        comm.world.turns.wait(comm.first + comm.rank, self._done, lambda: comm.look(), self._why)
        self._land()

    def _why(self) -> str:
        turns = self._comm.world.turns
        missing = [self._comm.first + rank for rank in self._missing()]
        ended = [rank for rank in missing if rank in turns.ended()]
        return f"it waits for rank {(ended or missing)[0]} in {self._what}, which " + (
            "has ended; give all ranks as many batches and exchanges"
            if ended
            else "waits for another rank; all ranks must issue the same exchanges in the same order"
        )


class LocalComm(Comm):
    """A rank of a World, or of `size` neighbours in it that begin with rank `first`.

    Each `of_model` and `part` has a channel of its own, so that exchanges of two models cannot mix.
    """

    serial = True
    takes_shorter = True

    def __init__(
        self,
        world: World,
        rank: int,
        device: torch.device | None = None,
        channel: int = 0,
        first: int = 0,
        size: int = 0,
    ) -> None:
        super().__init__(rank, size or world.size, device, object())
        self.world, self.first = world, first
        self._channel = (channel, first)
        self._issued = 0
        self._sent: defaultdict[int, int] = defaultdict(int)
        self._received: defaultdict[int, int] = defaultdict(int)

    @property
    def notes(self) -> Notes:
        """Notes in the World."""
        return LocalNotes(self)

    def of_model(self, device: torch.device) -> Comm:
        """Return a Comm of the same ranks, for the exchange of one model; all ranks ask in one order."""
        return self._made(device, self.first, self.world_size)

    def part(self, size: int) -> Comm:
        """Return a Comm of this rank and its neighbours."""
        return self._made(self.device, self.first + self.rank // size * size, size)

    def _made(self, device: torch.device, first: int, size: int) -> Comm:
        rank, channels = self.first + self.rank, self.world.channels
        channels[rank] += 1
        return LocalComm(self.world, rank - first, device, channels[rank], first, size)

    def begins(self) -> None:
        """Look at what the ranks of this World share."""
        for look in self.world.looks[self.first + self.rank]:
            look()

    def meet(self) -> None:
        """Return once all ranks are here; nothing is exchanged or counted."""
        self._meet("a meeting", torch.empty(0, dtype=torch.uint8), lambda tensors: tensors).wait()

    def shared(self, own: Any) -> Any:
        """Return rank 0's `own` on all ranks, the very same object."""
        if self.rank == 0:
            self.world.object = own
        self.meet()
        found = self.world.object
        self.meet()
        return found

    def _all_reduce(self, tensor: torch.Tensor, op: str) -> Pending:
        def reduce(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            total = ring_sum([one.reshape(-1) for one in tensors], op)
            for one in tensors:
                one.copy_(total.view(one.shape))
            return tensors

        return self._meet(f"all_reduce({op})", tensor, reduce)

    def _all_gather(self, tensor: torch.Tensor) -> Pending:
        def gather(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            return [torch.stack([one.reshape(-1) for one in tensors])] * len(tensors)

        return self._meet("all_gather", tensor, gather)

    def _reduce_scatter(self, tensor: torch.Tensor) -> Pending:
        return self._meet("reduce_scatter", tensor, lambda tensors: list(ring_sum(tensors).chunk(len(tensors))))

    def _broadcast(self, tensor: torch.Tensor, source: int) -> Pending:
        def spread(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            for rank, one in enumerate(tensors):
                if rank != source:
                    one.copy_(tensors[source])
            return tensors

        return self._meet(f"broadcast from rank {source}", tensor, spread)

    def _all_to_all(self, rows: torch.Tensor) -> Pending:
        return self._meet("all_to_all", rows, lambda all_rows: list(torch.stack(all_rows, 1)))

    def _meet(
        self, what: str, tensor: torch.Tensor, exchange: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    ) -> Pending:
        """Bring a tensor to the next collective of the channel; the last rank to come does the exchange."""
        meetings, key = self.world.meetings, (self._channel, self._issued)
        self._issued += 1
        meeting = meetings.setdefault(key, _Meeting(self.world_size))
        meeting.tensors[self.rank] = tensor
        meeting.facts[self.rank] = (what, tensor.numel(), str(tensor.dtype).removeprefix("torch."))
        self.world.turns.changed()
        tensors = [one for one in meeting.tensors if one is not None]
        if len(tensors) == self.world_size:
            del meetings[key]
            for rank, facts in enumerate(meeting.facts):
                if facts != meeting.facts[0]:
                    first, other = ("{} of {} {}".format(*facts) for facts in (meeting.facts[0], facts))
                    raise RunError(f"rank 0 issued {first}, and rank {rank} {other} in its place")
            with torch.no_grad():
                meeting.results = exchange(tensors)
        pending = Pending(None, tensor)

        def land() -> None:
            assert meeting.results is not None
            pending.result = meeting.results[self.rank]

        pending.work = _Work(self, what, lambda: meeting.results is not None, meeting.missing, land)
        return pending

    def _swap(self, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]) -> Pending:
        mail = self.world.mail
        for peer, tensor in sends.items():
            if tensor.numel():
                mail[self._channel, self.rank, peer, self._sent[peer]] = tensor.detach().clone()
                self._sent[peer] += 1
        coming = {}
        for peer, room in receives.items():
            if room.numel():
                coming[self._channel, peer, self.rank, self._received[peer]] = room
                self._received[peer] += 1
        self.world.turns.changed()

        def missing() -> list[int]:
            return [key[1] for key in coming if key not in mail]

        def land() -> None:
            for key, room in coming.items():
                message, target = _bytes(mail.pop(key)), _bytes(room)
                if message.numel() > target.numel():
                    sizes = f"{message.numel()} bytes to rank {self.rank}, which expects {target.numel()}"
                    raise RunError(f"rank {key[1]} sent {sizes}")
                target[: message.numel()].copy_(message)
            coming.clear()

        work = _Work(self, "a message", lambda: all(key in mail for key in coming), missing, land)
        return Pending(work, torch.empty(0, dtype=torch.float32))


class LocalNotes(Notes):
    """Notes in the World of a rank."""

    timeout_s = float("inf")  # the turns end a wait in vain

    def __init__(self, comm: LocalComm) -> None:
        self._comm, self._notes = comm, comm.world.notes

    def write(self, key: str, text: str) -> None:
        """Every rank can read `text` from now on."""
        self._notes[key] = text
        self._comm.world.turns.changed()

    def write_first(self, key: str, text: str) -> None:
        """As `write`, unless there is a note."""
        if key not in self._notes:
            self.write(key, text)

    def read(self, key: str) -> str | None:
        """Return the note, None if there is none."""
        return self._notes.get(key)

    def pause(self) -> None:
        """Let other ranks go on."""
        rank = self._comm.first + self._comm.rank
        self._comm.world.turns.pause(rank, lambda: "it waits for a note that no other rank writes")


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().view(-1).view(torch.uint8)


MAX_SEGMENT_BYTES = 1 << 20
"""Longest piece that gloo sends at once."""


def chunk_numel(numel: int, item_bytes: int, ranks: int) -> int:
    """Return the elements of a chunk; the last chunks may be shorter, or empty."""
    total_bytes = numel * item_bytes
    longest_bytes = MAX_SEGMENT_BYTES // item_bytes * item_bytes
    segments = _up(max(-(-total_bytes // longest_bytes), 2 * ranks), ranks)
    segment_bytes = _up(-(-total_bytes // segments), item_bytes)
    return segments // ranks * segment_bytes // item_bytes


def ring_sum(tensors: Sequence[torch.Tensor], op: str = "sum") -> torch.Tensor:
    """Return the sum, or the maximum, over flat tensors by rank; they must be on one device and are not changed."""
    ranks, total = len(tensors), torch.empty_like(tensors[0])
    size = chunk_numel(total.numel(), total.element_size(), ranks)
    for chunk, out in enumerate(total.split(size) if size else ()):
        lo, hi = chunk * size, chunk * size + out.numel()
        first, *others = (tensors[(chunk - step) % ranks][lo:hi] for step in range(1, ranks + 1))
        out.copy_(first)
        for other in others:
            if op == "max":
                # As std::max(own, what came): what came only where it is larger, so that a NaN of its own stays.
                torch.where(other < out, out, other, out=out)
            else:
                torch.add(other, out, out=out)
    return total


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
