"""A batch: the segments that one call compresses, each with its own density, its own threshold and its own slots.

All segments lie in one flat float32 vector, the first buffer of the memory; a segment consists of pieces, one per
tensor. Treating a whole bucket at once keeps the quality of per-tensor selection at the price of one call (D-11). A
single tensor is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ssfx.wire.memory import Accumulates
from ssfx.wire.payload import Context, Layout, Payload

if TYPE_CHECKING:
    import torch

Made = TypeVar("Made")


class Starts(NamedTuple):
    """Where a segment's share of each payload section begins, in entries."""

    counts: int = 0
    scales: int = 0
    indices: int = 0
    values: int = 0
    codes: int = 0
    first: int = 0


_FRONT = Starts()


@dataclass(frozen=True, slots=True)
class Part:
    """One segment: elements lo .. hi - 1 of the flat vector; `pieces` (lo, hi) and `shapes` of its tensors."""

    lo: int
    hi: int
    layout: Layout
    density: float
    tensor_id: int = 0
    starts: Starts = _FRONT
    pieces: tuple[tuple[int, int], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.hi - self.lo


@dataclass
class Batch:
    """Parts of one flat vector and the payload sections that they fill.

    Per step the owner sets `step`, `old`, `new`, `grads` and `states`; a compressor then accumulates through the memory
    and fills the payload (`ssfx.compressors.batch`).
    """

    parts: tuple[Part, ...]
    """The segments."""
    payload: Payload
    """Views of the message sections that all parts share."""
    new: Mapping[str, torch.Tensor]
    """Buffers of the memory after this step, flat float32; the first is what is compressed."""
    old: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The same before this step."""
    memory: Accumulates | None = None
    """How gradients accumulate; None: `new` is there already."""
    rank: int = 0
    """This rank."""
    world_size: int = 1
    """Number of ranks."""
    seed: int = 0
    """Of random numbers."""
    step: int = 0
    """Number of the step."""
    base: int = 0
    """Added to every index on the wire."""
    grads: Sequence[torch.Tensor | None] = ()
    """One entry per piece, in order: a flat gradient to accumulate, or None where `new` is there already."""
    states: Sequence[dict[str, torch.Tensor]] = ()
    """The compressor's own state, one per part, to be changed in place."""
    cleared: bool = False
    """Set by a compressor that takes what it sends out of the memory itself."""
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)
    """What depends on nothing but the plan; see `once`."""

    def __post_init__(self) -> None:
        self.pieces: tuple[tuple[int, int], ...] = tuple(piece for part in self.parts for piece in part.pieces)
        if not self.grads:
            self.grads = (None,) * len(self.pieces)
        if not self.states:
            self.states = [{} for _ in self.parts]
        self._position = {id(part): i for i, part in enumerate(self.parts)}

    @classmethod
    def single(cls, a: torch.Tensor, payload: Payload, ctx: Context) -> Batch:
        """Return a batch of one segment that holds `a`, nothing left to accumulate, with the payload's own layout."""
        layout = Layout(
            len(payload.counts),
            len(payload.scales),
            len(payload.indices),
            len(payload.values),
            str(payload.values.dtype).removeprefix("torch."),
            len(payload.codes),
            len(payload.first),
            str(payload.first.dtype).removeprefix("torch."),
        )
        whole = ((0, a.numel()),)
        part = Part(0, a.numel(), layout, ctx.density, ctx.tensor_id, pieces=whole, shapes=ctx.shapes)
        return cls(
            (part,),
            payload,
            {"a": a},
            rank=ctx.rank,
            world_size=ctx.world_size,
            seed=ctx.seed,
            step=ctx.step,
            states=[ctx.state],
        )

    @property
    def vector(self) -> torch.Tensor:
        """The flat vector that is compressed: the first buffer of the memory."""
        return next(iter(self.new.values()))

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what `make` returned when `name` was asked for first."""
        if name not in self._kept:
            self._kept[name] = make()
        made: Made = self._kept[name]
        return made

    def accumulate(self) -> None:
        """Bring every piece's `new` up to date with its gradient, one call per tensor; `grads` is empty afterwards."""
        if self.memory is not None:
            for (lo, hi), grad in zip(self.pieces, self.grads, strict=True):
                if grad is not None:
                    old = {name: buffer[lo:hi] for name, buffer in self.old.items()}
                    self.memory.accumulate(grad, old, {name: buffer[lo:hi] for name, buffer in self.new.items()})
        self.grads = (None,) * len(self.pieces)

    def context(self, part: Part) -> Context:
        """Return what a call for one part may depend on."""
        state = self.states[self._position[id(part)]]
        return Context(
            self.step, part.tensor_id, self.rank, self.world_size, part.density, self.seed, part.shapes, state
        )

    def key(self, tensor_id: int) -> int:
        """Return the 64-bit key of this rank's randomness for one tensor at this step."""
        return key(self.seed, tensor_id, self.step, self.rank)

    def share(self, part: Part) -> Payload:
        """Return the views of one part's share of the payload."""
        layout, at, whole = part.layout, part.starts, self.payload
        return Payload(
            counts=whole.counts[at.counts : at.counts + layout.counts],
            scales=whole.scales[at.scales : at.scales + layout.scales],
            indices=whole.indices[at.indices : at.indices + layout.indices],
            values=whole.values[at.values : at.values + layout.values],
            codes=whole.codes[at.codes : at.codes + layout.code_bytes],
            first=whole.first[at.first : at.first + layout.first],
        )


_MASK = (1 << 64) - 1


def splitmix64(z: int) -> int:
    """Return the SplitMix64 output for state `z` + the golden-ratio increment; 64-bit, wraps."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def key(seed: int, tensor_id: int, step: int, rank: int = 0) -> int:
    """Return the 64-bit key of private randomness of one tensor at one step, the same on every device and restart.

    `rank` 0 for randomness that must agree on all ranks. Never the global generator. Source: D-8.
    """
    h = seed & _MASK
    for part in (tensor_id, step, rank):
        h = splitmix64(h ^ part)
    return h
