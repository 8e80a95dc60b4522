"""What one step's exchange did, a stopwatch that works on CPU and CUDA streams, and traces for Chrome and Perfetto.

Traces use the stage names of the simulator.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from ssfx.core import accelerator
from ssfx.core.errors import RunError
from ssfx.core.files import replacing
from ssfx.runtime.message import ExchangeQueue, Message

TRACKS = ("compute", "host", "network")
BEGIN = "begin"
"""Category of the instants at which steps begin."""


class Tracer:
    """Collects spans by `perf_counter` seconds; a disabled tracer collects nothing."""

    def __init__(self, enabled: bool, rank: int) -> None:
        self.enabled = enabled
        self.rank = rank
        self._step: int | None = None
        self._events: list[dict[str, object]] = []

    def begin(self, step: int, start_s: float) -> None:
        """Note that optimizer step number `step` began at `start_s`; later spans belong to it."""
        if not self.enabled:
            return
        self._step = step
        self._events.append(
            {
                "name": f"step {step} begins",
                "cat": BEGIN,
                "ph": "i",
                "s": "p",
                "ts": start_s * 1e6,
                "pid": self.rank,
                "tid": 0,
                "args": {"step": step},
            }
        )

    def span(self, stage: str, start_s: float, end_s: float, track: str = "compute", detail: str = "") -> None:
        """Note that `stage` ran on `track` from `start_s` to `end_s`."""
        if not self.enabled:
            return
        self._events.append(
            {
                "name": f"{stage} {detail}".strip(),
                "cat": stage,
                "ph": "X",
                "ts": start_s * 1e6,
                "dur": max(0.0, end_s - start_s) * 1e6,
                "pid": self.rank,
                "tid": TRACKS.index(track),
                **({} if self._step is None else {"args": {"step": self._step}}),
            }
        )

    def save(self, path: str | Path) -> None:
        """Write the trace as Chrome JSON, atomically; open it in Perfetto or chrome://tracing; RunError without one."""
        if not self.enabled:
            raise RunError("no trace was kept; write ssfx.attach(..., trace=True) to have one to save")
        names = [
            {"name": "thread_name", "ph": "M", "pid": self.rank, "tid": i, "args": {"name": track}}
            for i, track in enumerate(TRACKS)
        ]
        process = {"name": "process_name", "ph": "M", "pid": self.rank, "args": {"name": f"rank {self.rank}"}}
        drawn = {"traceEvents": [process, *names, *self._events], "displayTimeUnit": "ms"}
        with replacing(Path(path)) as file:
            file.write(json.dumps(drawn))


class Stopwatch:
    """Sums up seconds by name; on CUDA events are read only when asked for, so no stream is ever blocked."""

    def __init__(self, device: torch.device, tracer: Tracer) -> None:
        self._device, self._queued = device, accelerator.queued(device)
        self._tracer = tracer
        self.reset()

    def reset(self) -> None:
        """Start a new step at zero."""
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.Event, torch.Event]] = []

    @contextmanager
    def time(self, stage: str, detail: str = "", track: str = "compute") -> Iterator[None]:
        """Add the time of the block to `stage` and, if tracing, draw it on `track`."""
        began = perf_counter()
        if self._queued:
            start = accelerator.event(self._device, timed=True)
            yield
            self._events.append((stage, start, accelerator.event(self._device, timed=True)))
        else:
            yield
            self._seconds[stage] += perf_counter() - began
        self._tracer.span(stage, began, perf_counter(), track, detail)

    def seconds(self, stage: str) -> float:
        """Return the seconds of a stage in this step; on CUDA waits for the events."""
        total = self._seconds.get(stage, 0.0)
        for name, start, end in self._events:
            if name == stage:
                total += accelerator.seconds(start, end)
        return total


class _Read(NamedTuple):
    density: float
    missing: float | None
    ratios: list[float]
    comm_s: float


@dataclass
class StepStats:
    """The latest exchange. Densities are read from the message buffers, so ask before the next backward.

    `observed`: a scheme observes this step before it plans, or tries a candidate plan in it. `plan_s`: seconds at its
    end for measuring costs, planning, agreeing and installing.
    """

    step: int
    skipped: bool
    contributed_bytes: int
    sent_bytes: int
    _queue: ExchangeQueue = field(repr=False)
    _watch: Stopwatch = field(repr=False)
    _messages: Sequence[Message] = field(repr=False)
    _elements: int = field(repr=False)
    _tensors: int = field(repr=False)
    _read: _Read | None = field(default=None, repr=False)
    observed: bool = False
    plan_s: float = 0.0

    @property
    def sparsify_s(self) -> float:
        """Seconds the training thread spent accumulating and compressing."""
        return self._watch.seconds("compress")

    @property
    def decode_s(self) -> float:
        """Seconds the training thread spent decoding and writing gradients."""
        return self._watch.seconds("decompress")

    @property
    def exposed_comm_s(self) -> float:
        """Seconds the training thread waited for exchanges (and for host compression still under way)."""
        return self._watch.seconds("wait")

    @property
    def comm_s(self) -> float:
        """Seconds during which an exchange was under way, hidden or not."""
        return self._read.comm_s if self._read else self._queue.comm_s()

    def summary(self) -> dict[str, float | int | str | None]:
        """Return what the step did, by name."""
        names = (
            "contributed_bytes",
            "sent_bytes",
            "comm_s",
            "sparsify_s",
            "decode_s",
            "exposed_comm_s",
            "achieved_density",
            "tensor_missing_rate",
        )
        return {name: getattr(self, name) for name in names}

    def freeze(self) -> None:
        """Read the buffers now and let go of them; a second call does nothing."""
        if self._read is None:
            self._read = _Read(self._density(), self._missing(), self._ratios(), self._queue.comm_s())
            self._messages = ()

    @property
    def achieved_density(self) -> float:
        """Elements this rank sent over all elements."""
        return self._read.density if self._read else self._density()

    @property
    def tensor_missing_rate(self) -> float | None:
        """The share of tensors with no sent element on this rank; None if the payload does not tell."""
        return self._read.missing if self._read else self._missing()

    @property
    def density_ratios(self) -> list[float]:
        """Achieved over target density of each segment that is to send a fraction, but at least one element."""
        return self._read.ratios if self._read else self._ratios()

    def _density(self) -> float:
        return sum(message.sent_elements() for message in self._messages) / max(1, self._elements)

    def _ratios(self) -> list[float]:
        return [ratio for message in self._messages for ratio in message.density_ratios()]

    def _missing(self) -> float | None:
        counts = [message.tensors_without_elements() for message in self._messages]
        counted = [count for count in counts if count is not None]
        return sum(counted) / max(1, self._tensors) if len(counted) == len(counts) else None
