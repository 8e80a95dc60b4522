"""The words of the wire: how much of a message a segment takes, views of that, and what a call may depend on besides.

A lane's message is one contiguous byte buffer whose size is known when the plan is made. It holds, for all segments of
the lane back to back (structure of arrays), the sections

    first int32 or float32 | counts int32 | scales float32 | indices int32 | values float32 or 16 bit | codes uint8

so every 4-byte section is aligned. A compressor declares how much of each section a segment takes (`Layout`) and gets
views of exactly that (`Payload`) to fill. Source: D-1, D-4 to D-8.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ssfx.core.lazy import torch
from ssfx.planning.plan import ITEM_BYTES

VALUE_BYTES = ITEM_BYTES
"""Bytes of a value on the wire: gradients' types, and integers that ranks add up."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How many entries of each section one segment occupies on the wire.

    `first` is what a compressor of two rounds combines over all ranks before it compresses; int32 or float32. `packed`:
    for how many selected elements the codes stand; 0 where they are no selection.
    """

    counts: int = 0
    scales: int = 0
    indices: int = 0
    values: int = 0
    value_dtype: str = "float32"
    code_bytes: int = 0
    first: int = 0
    first_dtype: str = "float32"
    packed: int = 0

    @property
    def selected(self) -> int:
        """Selected elements that there is room for; 0 where every element is sent."""
        return self.indices or self.packed

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
        """Every receiver now sees that this segment was not finite, whichever part of the payload is sent."""
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
