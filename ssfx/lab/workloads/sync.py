"""What the training loop needs of the runtime's `ssfx.attach`, so that it can be run and tested without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class Stats(Protocol):
    """The latest exchange, as this rank saw it; members are named as in ssfx.core.rows.METRICS."""

    @property
    def sparsify_s(self) -> float:
        """Seconds of compression on the training thread."""

    @property
    def decode_s(self) -> float:
        """Seconds of decompression on the training thread."""

    @property
    def exposed_comm_s(self) -> float:
        """Seconds the training thread waited."""

    @property
    def comm_s(self) -> float:
        """Seconds during which an exchange was under way."""

    @property
    def contributed_bytes(self) -> float:
        """Bytes handed to collectives."""

    @property
    def sent_bytes(self) -> float:
        """Bytes put on the wire."""

    @property
    def achieved_density(self) -> float:
        """Elements sent over elements."""

    @property
    def density_ratios(self) -> Sequence[float]:
        """Achieved over target density of each segment that is to send a fraction, but at least one element."""

    @property
    def tensor_missing_rate(self) -> float | None:
        """Tensors of which nothing was sent over tensors; None if unknown."""

    @property
    def observed(self) -> bool:
        """True for a step that a scheme observes before it plans, or in which it tries one of several plans."""

    @property
    def plan_s(self) -> float:
        """Seconds at the end of the step in which a plan was made of what was observed; 0 where none was."""

    @property
    def kept_back(self) -> float | None:
        """The norm of what error feedback kept back over that of what there was to send; None if not measured."""

    @property
    def skipped(self) -> bool:
        """True when a gradient was not finite and all ranks skip the step."""


@dataclass(frozen=True)
class NoExchange:
    """The statistics of a step of a single rank, which exchanges nothing: its own gradient arrives whole."""

    skipped: bool
    sparsify_s: float = 0.0
    decode_s: float = 0.0
    exposed_comm_s: float = 0.0
    comm_s: float = 0.0
    contributed_bytes: float = 0.0
    sent_bytes: float = 0.0
    achieved_density: float = 1.0
    density_ratios: tuple[float, ...] = ()
    tensor_missing_rate: float | None = 0.0
    observed: bool = False
    plan_s: float = 0.0
    kept_back: float | None = None


class Spans(Protocol):
    """What draws a timeline; see ssfx.runtime.trace."""

    def begin(self, step: int, start_s: float) -> None:
        """Note that a step began, by `perf_counter`."""

    def span(self, stage: str, start_s: float, end_s: float) -> None:
        """Note what the training thread did from `start_s` to `end_s`, by `perf_counter`."""


class Sync(Protocol):
    """Gradient exchange attached to a model.

    When `backward()` returns, `.grad` is the average over ranks. After a skipped step it holds nothing, or NaN if there
    is a GradScaler, so that the optimizer (the scaler) leaves all parameters alone.
    """

    @property
    def last(self) -> Stats | None:
        """Statistics of the latest exchange; None if there is nobody to exchange with."""

    @property
    def tracer(self) -> Spans:
        """Where spans go."""

    def stats(self) -> Mapping[str, float | int | str | None]:
        """Return, where there are such things, `residual_norm` of what was not sent yet and the `threshold` in use."""

    def no_sync(self) -> AbstractContextManager[Any]:
        """Backward inside this context adds to `.grad` and exchanges nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs on this rank."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""

    def detach(self) -> None:
        """Remove the hooks and stop the exchange thread."""


class Attach(Protocol):
    """`ssfx.attach`, or something that stands in for it."""

    def __call__(self, model: Any, optimizer: Any, **options: Any) -> Sync:
        """Attach to the model; `options` are scheme, compressor, density, memory, scaler, seed and the scheme's own."""
