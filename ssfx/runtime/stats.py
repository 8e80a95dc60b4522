"""What one step's exchange did, and a stopwatch that works on CPU and CUDA streams."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import torch

from ssfx.core import accelerator
from ssfx.runtime.message import Message
from ssfx.runtime.queue import ExchangeQueue
from ssfx.runtime.trace import Tracer


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
    end for measuring costs, planning, agreeing and installing. `kept_back`: on this rank the residual's norm over that
    of gradient plus earlier residual; None in steps in which it is not measured.
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
    kept_back: float | None = None

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
            "contributed_bytes", "sent_bytes", "comm_s", "sparsify_s", "decode_s", "exposed_comm_s",
            "achieved_density", "tensor_missing_rate",
        )  # fmt: skip
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
