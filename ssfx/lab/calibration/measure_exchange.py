"""Measuring exchanges: what one takes alone, how much computing it does, and what it takes under a backward pass.

Exchanges are issued as the runtime issues them, through Comm and the collectives, by all ranks at the same time, one
after the other. Under a backward pass they are issued from its hooks, so that no thread waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from threading import Thread
from time import perf_counter, process_time, thread_time

import torch

from ssfx.collectives import Reducer, Reduction, collectives
from ssfx.collectives.comm import Comm, Pending
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.compressors.sparse import top_k
from ssfx.runtime.online import issuer

PRIMITIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_v",
    "all_gather_twice",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send",
)
"""What collectives consist of, two of them that planners ask for by name, and what torch sums over shards by."""
IN_PARTS = ("all_to_all", "reduce_scatter")
"""Those to which a rank brings a part for every rank."""
REDUCERS = ("gtopk", "micro", "ok_topk", "spar_reduce_scatter", "sparcml_rd")
"""Collectives that are measured as a whole, because they compute on the way."""
REDUCERS_BYTES = (2**8, 2**20)
"""Payloads that reducers are measured with: from 3,200 to 13 million elements at the density below."""
DENSITY = 0.01
MIN_BYTES = 4
STEP = 4
LONGEST_S = 0.8
"""A primitive whose call takes longer than this is not tried at the next size."""
_BUDGET_S = 0.2
_MOST_CALLS = 100
_MOST_UNDER_COMPUTE = 40
_UNDISTURBED_S = 0.06
_LAYERS, _WIDTH, _BATCH = 16, 192, 64


@dataclass(frozen=True)
class ExchangePoint:
    """One primitive at one size, `nbytes` contributed by each rank; the median of calls on the slowest rank.

    The last three are None where an exchange takes too long to be measured under compute.
    """

    primitive: str
    nbytes: int
    alone_s: float
    """Seconds while nothing else runs."""
    cpu_s: float
    """CPU seconds of the rank's other threads during it, kernel time included; of a reducer, of all threads, because it
    selects and adds up in the thread that waits."""
    under_compute_s: float | None = None
    """Seconds while every rank runs backward passes."""
    under_compute_cpu_s: float | None = None
    """CPU seconds of all threads but the one that runs the passes."""
    under_compute_lost_s: float | None = None
    """CPU seconds by which the passes get longer, because whoever interrupts them leaves cold caches behind."""


UnderCompute = tuple[float | None, float | None, float | None]
"""under_compute_s, under_compute_cpu_s and under_compute_lost_s of an ExchangePoint."""


def exchange_points(comm: Comm, max_bytes: int, primitives: Sequence[str] = PRIMITIVES) -> list[ExchangePoint]:
    """Return the points of all `primitives` up to `max_bytes`, equal on all ranks."""
    backward = _Backward()
    return [point for name in primitives for point in _points(comm, name, max_bytes, backward)]


def _points(comm: Comm, name: str, max_bytes: int, backward: _Backward) -> Iterator[ExchangePoint]:
    # A part for every rank, or nothing would be sent.
    nbytes = MIN_BYTES * comm.world_size if name in IN_PARTS else MIN_BYTES
    reduces = name in collectives and isinstance(collectives.build(name), Reducer)
    if reduces:
        nbytes, max_bytes = REDUCERS_BYTES[0], min(REDUCERS_BYTES[1], max_bytes)
    while nbytes <= max_bytes:
        issue = reduction(comm, name, nbytes) if reduces else issuer(comm, name, nbytes)
        first_s, _ = _alone(comm, issue, 2, reduces)
        calls = max(5, min(_MOST_CALLS, int(_BUDGET_S / _worst(comm, first_s))))
        alone_s, cpu_s = _alone(comm, issue, calls, reduces)
        worst_s, cpu_s = _worst(comm, alone_s), _mean(comm, cpu_s)
        under_compute: UnderCompute = (None, None, None)
        if worst_s < LONGEST_S:
            # The runtime leaves it to a thread that waits where it has several phases, or is part of such ones.
            kind = _Waited if name not in collectives or collectives.build(name).blocking else _Polled
            under_compute = backward.exchanging(comm, kind(issue, min(calls, _MOST_UNDER_COMPUTE)))
        yield ExchangePoint(name, nbytes, worst_s, cpu_s, *under_compute)
        if worst_s > LONGEST_S:
            return
        nbytes *= STEP


def reduction(comm: Comm, name: str, nbytes: int) -> Callable[[], Pending]:
    """Return a call of a reducer in which each rank selects `nbytes` of pairs, at DENSITY; data have heavy tails.

    They are scaled so that the threshold from which MiCRO starts, and which it hardly moves in so few calls, is right.
    """
    reducer = collectives.build(name)
    assert isinstance(reducer, Reducer)
    kept = nbytes // 8
    data = torch.randn(
        round(kept / DENSITY), dtype=torch.float32, generator=torch.Generator().manual_seed(comm.rank)
    ).pow_(3)
    chosen = top_k(data, kept)
    data *= threshold_for(kept) / data[chosen].abs().min()
    work = Reduction(data, kept, state=reducer.initial_state(data.numel(), comm.world_size))

    def call() -> Pending:
        work.vector, work.step = data.clone(), work.step + 1
        if not reducer.selects:
            work.indices, work.values = chosen, data[chosen]
            work.vector[chosen] = 0
        return Pending(None, reducer.reduce(work, comm).values)

    return call


def _alone(comm: Comm, issue: Callable[[], Pending], calls: int, itself: bool = False) -> tuple[float, float]:
    """Return the median seconds of a call and the mean CPU seconds of other threads, of `itself` too if asked."""
    _together(comm)
    times = []
    cpu_s = process_time() - (0.0 if itself else thread_time())
    for _ in range(calls):
        began = perf_counter()
        issue().wait()
        times.append(perf_counter() - began)
    return median(times), (process_time() - (0.0 if itself else thread_time()) - cpu_s) / calls


def _together(comm: Comm) -> None:
    comm.all_reduce(torch.zeros(1, dtype=torch.float32)).wait()


def _worst(comm: Comm, value: float) -> float:
    return float(comm.all_reduce(torch.tensor([value], dtype=torch.float64), op="max").wait())


def _mean(comm: Comm, value: float) -> float:
    return float(comm.all_reduce(torch.tensor([value], dtype=torch.float64)).wait()) / comm.world_size


class _Backward:
    """Backward passes of a small network, whose hooks may issue exchanges."""

    def __init__(self) -> None:
        layers: list[torch.nn.Module] = []
        for _ in range(_LAYERS):
            layers += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers)
        self._inputs = torch.randn(_BATCH, _WIDTH, dtype=torch.float32)
        self._hook: Callable[[], None] = lambda: None
        for parameter in self._model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: self._hook())

    def exchanging(self, comm: Comm, series: _Polled | _Waited) -> UnderCompute:
        """Return of an exchange of `series` under these passes: its seconds, others' CPU seconds and those lost.

        The seconds are the median on the slowest rank, CPU seconds the mean over ranks. What is lost is how much more a
        pass takes its own thread than the undisturbed ones before and after, without issuing.
        """
        before_s = self._pass_s(_Span(_UNDISTURBED_S))
        _together(comm)
        series.start()
        cpu_s = process_time() - thread_time()
        passes, own_s = self._until(series)
        cpu_s = process_time() - thread_time() - cpu_s
        _together(comm)
        after_s = self._pass_s(_Span(_UNDISTURBED_S))
        lost_s = own_s - series.issuing_s - passes * (before_s + after_s) / 2
        calls = series.calls
        return _worst(comm, median(series.seconds)), _mean(comm, cpu_s / calls), _mean(comm, lost_s / calls)

    def _pass_s(self, span: _Span) -> float:
        """Return the CPU seconds of a pass, all ranks computing."""
        passes, own_s = self._until(span)
        return own_s / passes

    def _until(self, span: _Span | _Polled | _Waited) -> tuple[int, float]:
        """Compute until `span` is over; return the number of passes, at least one, and this thread's CPU seconds."""
        self._hook = span.poll
        began_s, passes = thread_time(), 0
        while not (passes and span.over()):
            self._model(self._inputs).sum().backward()
            passes += 1
        self._hook = lambda: None
        return passes, thread_time() - began_s


class _Span:
    """Some seconds of passes without any exchange."""

    def __init__(self, seconds: float) -> None:
        self._end_s = perf_counter() + seconds

    def over(self) -> bool:
        return perf_counter() > self._end_s

    def poll(self) -> None:
        """Nothing to do."""


class _Polled:
    """Exchanges issued by whoever polls, the next when the one before has ended; `seconds` of each.

    `issuing_s`: the CPU seconds that issuing has taken. Where nothing is issued the clock of CPU time is not asked: it
    is a system call that may end the thread's turn, after which exchanges take a third of their time.
    """

    def __init__(self, issue: Callable[[], Pending], calls: int) -> None:
        self._issue, self._left, self.calls = issue, calls, calls
        self._under_way: Pending | None = None
        self._issued_s = self.issuing_s = 0.0
        self.seconds: list[float] = []

    def start(self) -> None:
        """The first poll issues the first."""

    def over(self) -> bool:
        """True when the last one was seen to end."""
        return not self._left and self._under_way is None

    def poll(self) -> None:
        """Note the end of the one under way, and issue the next."""
        if self._under_way is not None:
            if not self._under_way.done():
                return
            self._under_way.wait()
            self._under_way = None
            self.seconds.append(perf_counter() - self._issued_s)
        if self._left:
            self._left -= 1
            self._issued_s, began_s = perf_counter(), thread_time()
            self._under_way = self._issue()
            self.issuing_s += thread_time() - began_s


class _Waited:
    """The same in a thread of its own, which waits for each: messages between two ranks end only for who waits."""

    issuing_s = 0.0  # no CPU seconds of the thread that computes

    def __init__(self, issue: Callable[[], Pending], calls: int) -> None:
        self._issue, self.calls = issue, calls
        self._thread = Thread(target=self._run, daemon=True)
        self.seconds: list[float] = []

    def start(self) -> None:
        """Issue the first."""
        self._thread.start()

    def over(self) -> bool:
        """True when all have ended."""
        return not self._thread.is_alive()

    def poll(self) -> None:
        """Nothing to do."""

    def _run(self) -> None:
        for _ in range(self.calls):
            began = perf_counter()
            self._issue().wait()
            self.seconds.append(perf_counter() - began)
