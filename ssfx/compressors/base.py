"""What a compressor is: its wire layout at plan time, compress and decompress at run time.

A lane's message is one contiguous byte buffer whose size is known when the plan is made. It holds, for all segments of
the lane back to back (structure of arrays), the sections

    first int32 or float32 | counts int32 | scales float32 | indices int32 | values float32 or 16 bit | codes uint8

so every 4-byte section is aligned. A compressor declares how much of each section a segment takes (`Layout`) and gets
views of exactly that (`Payload`) to fill. Source: D-1, D-4 to D-8.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ssfx.core.component_spec import Catalog
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.kernels import accelerator
from ssfx.planning.plan import ITEM_BYTES

if TYPE_CHECKING:
    from ssfx.compressors.batch import Batch


VALUE_BYTES = {**ITEM_BYTES, "int8": 1}
"""Bytes of a value on the wire: gradients' types, and integers that ranks add up."""


def k_floor(numel: Any, density: Any) -> Any:
    """Number of elements kept: floor(density * numel) up to 1e-6, at least 1, at most numel (0 when numel is 0).

    Of arrays of sizes, the array of them.
    """
    if isinstance(numel, int):
        return min(numel, max(1, math.floor(density * numel + 1e-6)))
    return np.minimum(numel, np.maximum(1, np.floor(density * numel + 1e-6)))


def k_ceil(numel: Any, density: Any) -> Any:
    """As `k_floor`, rounding up; the DGC rule."""
    if isinstance(numel, int):
        return min(numel, max(1, math.ceil(density * numel - 1e-6)))
    return np.minimum(numel, np.maximum(1, np.ceil(density * numel - 1e-6)))


@dataclass(frozen=True, slots=True)
class Layout:
    """How many entries of each section one segment occupies on the wire.

    `first` is what a compressor of two rounds combines over all ranks before it compresses; int32 or float32.
    """

    counts: int = 0
    scales: int = 0
    indices: int = 0
    values: int = 0
    value_dtype: str = "float32"
    code_bytes: int = 0
    first: int = 0
    first_dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Bytes of the segment's share of the message."""
        return (
            4 * (self.first + self.counts + self.scales + self.indices)
            + VALUE_BYTES[self.value_dtype] * self.values
            + self.code_bytes
        )


@dataclass(slots=True)
class Payload:
    """Writable views of one segment's share of a message; a section the layout does not use has length 0.

    `indices` are positions inside the segment, ascending over the used part and unique; padding is index 0 value 0.
    """

    counts: torch.Tensor
    scales: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor
    codes: torch.Tensor
    first: torch.Tensor

    @classmethod
    def allocate(cls, layout: Layout, device: torch.device | str = "cpu") -> Payload:
        """Return a zeroed payload of `layout` with memory of its own, outside any message."""

        def section(size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        return cls(
            counts=section(layout.counts, torch.int32),
            scales=section(layout.scales, torch.float32),
            indices=section(layout.indices, torch.int32),
            values=section(layout.values, getattr(torch, layout.value_dtype)),
            codes=section(layout.code_bytes, torch.uint8),
            first=section(layout.first, getattr(torch, layout.first_dtype)),
        )

    def poison(self) -> None:
        """Every receiver now sees that this segment was not finite, whatever part of the payload is sent."""
        self.counts.fill_(self.values.numel())
        self.indices.zero_()
        self.codes.zero_()
        self.values.fill_(float("nan"))
        self.scales.fill_(float("nan"))

    @property
    def nbytes(self) -> int:
        """Bytes of all sections; equals the layout's."""
        sections = (self.first, self.counts, self.scales, self.indices, self.values, self.codes)
        return sum(section.nbytes for section in sections)


@dataclass(frozen=True, slots=True)
class Context:
    """What a call may depend on besides its data: the step and the keys of private randomness.

    `tensor_id` is the position of the segment's first tensor in the sorted list of parameter names, `shapes` are those
    of its tensors. `state` is the compressor's own state of this segment: what `compress` writes there in place is
    committed or forgotten with the step; while decoding it is the committed one.
    """

    step: int
    tensor_id: int
    rank: int
    world_size: int
    density: float
    seed: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    state: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call of a compressor issues and moves on a device: kernels of it, and bytes an element.

    `decode_nbytes` are of an entry of the payload where it is sparse, else of an element. Raises ValueError for numbers
    that cannot be.
    """

    calls: int
    nbytes: float
    decode_calls: int = 2
    decode_nbytes: float = 80.0
    segment_calls: int = 0
    """How many of the calls every further segment of a batch makes again."""

    def __post_init__(self) -> None:
        calls = (self.calls, self.decode_calls, self.segment_calls)
        if min(self.calls, self.decode_calls) < 1 or not all(isinstance(one, int) for one in calls):
            raise ValueError("calls and decode_calls of a cost are whole numbers of at least 1")
        if not 0 <= self.segment_calls <= self.calls or not 0 <= min(self.nbytes, self.decode_nbytes) < math.inf:
            raise ValueError("segment_calls of a cost are at most its calls, and bytes are not negative")


class Compressor(ABC):
    """Turns a flat float32 vector into a payload and back; stateless except for its options.

    Class attributes are the declaration that `ssfx list` prints; plans are checked against an instance, whose options
    may change `additive`, `sparse`, `error_feedback` and `lossless`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    options: Any
    """The frozen dataclass that the component was built with."""
    additive: bool = False
    """The sum of payloads is the payload of the sum, so an all-reduce may carry it (values section only)."""
    sparse: bool = False
    """The payload is (indices, values): decoding is an indexed add, done for a whole lane at once."""
    error_feedback: bool = True
    """A residual memory may be used; False where it would diverge (D-14)."""
    lossless: bool = False
    """Nothing is left out, so no memory is kept for it."""
    rounds: int = 1
    """2: `propose` fills the payload's `first` section, which ranks combine before `compress` is called."""
    combine: Literal["sum", "max"] = "sum"
    """What becomes of the first sections of all ranks. Where it is max, what is not finite is proposed as infinity."""
    vote: bool = False
    """Receivers take the sign of the sum instead of the mean."""
    zeros_vote: bool = False
    """A gradient of zero votes, so that parameters without a gradient move in every step."""
    in_arrays: ClassVar[bool] = False
    """`layout` takes arrays of sizes and densities, too, and returns a layout of arrays; not inherited by another."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "layout" in cls.__dict__ and "in_arrays" not in cls.__dict__:
            cls.in_arrays = False

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def layout(self, numel: int, density: float) -> Layout:
        """Return the wire layout of a segment of `numel` elements; a pure function, no torch."""

    def check_world(self, world_size: int) -> None:  # noqa: B027  most can be added up by any number of ranks
        """Raise ConfigError where the payloads of so many ranks cannot be added up."""

    def propose(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Fill the `first` section of `payload` from `a`; only with two rounds."""
        raise TypeError(f"compressor {self.name} has one round")

    @abstractmethod
    def compress(self, a: torch.Tensor, payload: Payload, ctx: Context) -> None:
        """Fill `payload` from `a` (flat, contiguous, float32, finite); `a` is left unchanged."""

    def layout_of(self, shapes: Sequence[tuple[int, ...]], density: float) -> Layout:
        """Return the wire layout of a segment of tensors of these shapes; only their number of elements counts."""
        return self.layout(sum(math.prod(shape) for shape in shapes), density)

    def cost(self) -> Cost | None:
        """Return what a call issues and moves, for times on a device that is not here; None where nobody knows.

        The compressors of this package have counted ones, and so need no answer.
        """
        return None

    def work(self, shapes: Sequence[tuple[int, ...]]) -> float:
        """Return the size of the job that a segment is, in the units over which its times are measured: elements."""
        return float(sum(math.prod(shape) for shape in shapes))

    def pieces(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Return of how many parts, each with its own start-up, the job of one segment consists."""
        return 1

    def cycle(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return how many values, from the front, a payload uses at step 0, 1, ...; empty if it is always all of them.

        Steps beyond the last entry start over. Only with `additive`; a message of one segment is cut to that length.
        """
        return ()

    def state_shapes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return name and shape of the float32 state that a segment needs; it starts as zeros."""
        return {}

    def compress_batch(self, batch: Batch) -> None:
        """Accumulate and fill the payload of every segment of a batch; a rank's NaN or Inf reaches every receiver.

        This default compresses one segment after the other; a compressor that can do better does.
        """
        batch.accumulate()
        for part in batch.parts:
            if not part.numel:
                continue
            a, payload = batch.vector[part.lo : part.hi], batch.share(part)
            total = a.sum()
            if not accelerator.queued(a.device) and not (torch.isfinite(total) or torch.isfinite(a).all()):
                payload.poison()
                continue
            self.compress(a, payload, batch.context(part))
            if self.sparse and payload.indices.numel():
                payload.indices.add_(part.lo + batch.base)
            if accelerator.queued(a.device):  # no branch on its value: 0 * total is 0, or NaN if total is not finite
                payload.values.add_(total * 0)
                payload.scales.add_(total * 0)

    def received(self, payload: Payload, ctx: Context) -> None:  # noqa: B027  most have nothing to note
        """Take note of a payload that the ranks have added up, before it is decoded; only with `additive`.

        The step is committed: what is written to `ctx.state` here belongs to the next one.
        """

    @abstractmethod
    def decompress_add(self, payload: Payload, out: torch.Tensor, ctx: Context, scale: float = 1.0) -> None:
        """Add scale * decoded payload to `out` (flat float32); indices may repeat only as zero padding."""


compressors: Catalog[Compressor] = Catalog("compressor", "ssfx.compressors")


def build(spec: str) -> Compressor:
    """Return the compressor of a spec; equal specs share one instance."""
    return compressors.build(spec)
