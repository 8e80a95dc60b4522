"""What a compressor is: its wire layout at plan time, compress and decompress at run time.

It declares how much of each section of a message a segment takes (`Layout`) and gets views of exactly that (`Payload`)
to fill. Source: D-1, D-4 to D-8.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ssfx.core import accelerator
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import Catalog
from ssfx.wire.payload import Context as Context
from ssfx.wire.payload import Layout as Layout
from ssfx.wire.payload import Payload as Payload

if TYPE_CHECKING:
    from ssfx.wire.batch import Batch


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
    """2: `propose` fills the payload's `first` section, which ranks add up before `compress` is called."""
    vote: bool = False
    """Receivers take the sign of the sum instead of the mean; only of payloads that are gathered."""
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
        """Return what a call issues and moves, for times on a device that is not here; None where it is unknown.

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


_MEANT = {
    "qsgd(bits=2,norm=max)": "terngrad ternary int2 2bit",
    "qsgd(bits=4,bucket=32,norm=max)": "int4 4bit nf4 fp4 mxfp4 nvfp4",
    "qsgd(bits=8,norm=max)": "int8 uint8 8bit quantized quantize quantization",
    "fp8": "mxfp8 float8 e4m3 e5m2",
    "fp16": "half float16 16bit",
    "bf16": "bfloat16",
    "ef_signsgd": "efsgd ef_sgd dist_ef_sgd",
    "signsgd": "sign signum",
    "onebit": "1bit 1bit_adam onebit_adam 1bit_lamb 01_adam",
    "randomk": "randk random rand_k",
    "topk": "eftopk magnitude sparse sparsification sparsify",
    "dgc": "deep_gradient_compression",
    "powersgd": "low_rank svd atomo powersgd_hook batched_powersgd",
    "hard_threshold": "threshold",
}
OTHER_WORDS = {word: spec for spec, words in _MEANT.items() for word in words.split()}
"""What people call compressors, and what does the same here, or the nearest."""
NEAREST = "fp16, fp8, qsgd of fewer bits, signsgd, onebit of signs, topk, dgc of few elements, powersgd of low rank"

compressors: Catalog[Compressor] = Catalog("compressor", "ssfx.compressors", OTHER_WORDS, NEAREST)


def build(spec: str) -> Compressor:
    """Return the compressor of a spec; equal specs share one instance."""
    return compressors.build(spec)
