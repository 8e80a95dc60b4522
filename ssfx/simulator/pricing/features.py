"""What prices depend on: sums over the segments of a message, or over those between two cuts, as columns of numbers.

A table has a row for each feature below and a column for each segment, message or range of tensors. Adding columns adds
up everything that a message's price is a function of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ssfx.compressors import build
from ssfx.compressors.base import Compressor
from ssfx.core.lazy import numpy as np
from ssfx.wire.payload import VALUE_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

Shapes = tuple[tuple[int, ...], ...]

NUMEL, TENSORS, SEGMENTS, FILLED, FIRST, REST, UNUSED, KEPT, CALLS, PACKED, WORK, PIECES, ROOM, ASKED = range(14)
"""Elements; tensors; segments; bytes that are copied into the message as they are; bytes of the first round, if
compressors agree on something; all other bytes; values that a message of changing length leaves unused on average;
elements that are kept; compressed segments, and their tensors; their work, pieces (`Compressor.work`, `pieces`), room
for entries, and entries asked for."""
COUNT = 14


@lru_cache(maxsize=1 << 16)
def compressed(spec: str, shapes: Shapes, density: float) -> tuple[float, ...]:
    """Return the features of one segment with elements that a compressor handles."""
    compressor = build(spec)
    layout, used = compressor.layout_of(shapes, density), compressor.cycle(shapes)
    numel = sum(math.prod(shape) for shape in shapes)
    unused = (layout.values - sum(used) / len(used)) * VALUE_BYTES[layout.value_dtype] / 4 if used else 0.0
    return (
        numel,
        len(shapes),
        1,
        0,
        4 * layout.first,
        layout.nbytes - 4 * layout.first,
        unused,
        min(numel, layout.values or layout.packed) if layout.selected else numel,
        1,
        len(shapes),
        compressor.work(shapes),
        compressor.pieces(shapes),
        layout.selected,
        max(1.0, density * numel),
    )


def plain(numel: int, nbytes: int, tensors: int = 1) -> tuple[float, ...]:
    """Return the features of one segment that travels as it is."""
    return (numel, tensors, 1, nbytes, 0, nbytes, 0, numel, 0, 0, 0, 0, 0, 0)


def of_plain(numel: Array, nbytes: Array) -> Array:
    """Return the table of tensors that travel as they are, each a segment."""
    table = np.zeros((COUNT, len(numel)))
    table[[NUMEL, KEPT]], table[[FILLED, REST]] = numel, nbytes
    table[[TENSORS, SEGMENTS]] = 1.0
    return table


def of_tensors(spec: str, shapes: Sequence[tuple[int, ...]], numel: Array, density: Array | float) -> Array:
    """Return the table of tensors that a compressor handles, each a segment of its own, at one density or at several.

    Columns of tensors without elements are zero but for the tensor itself.
    """
    compressor = build(spec)
    if by_size(spec):
        table = of_sizes(compressor, numel, density)
    else:
        densities = np.broadcast_to(density, numel.shape).tolist()
        columns = [
            compressed(spec, (shape,), at) if n else plain(0, 0)
            for shape, n, at in zip(shapes, numel.tolist(), densities, strict=True)
        ]
        table = np.array(columns, dtype=float).T.reshape(COUNT, len(numel))
    empty = numel == 0
    if empty.any():
        table[:, empty] = 0.0
        table[TENSORS, empty] = 1.0
    return table


def by_size(spec: str) -> bool:
    """Return whether nothing but the number of elements counts of what a compressor handles, and arrays are taken."""
    compressor = build(spec)
    kind = type(compressor)
    plain_work = kind.work is Compressor.work and kind.pieces is Compressor.pieces and kind.cycle is Compressor.cycle
    return compressor.in_arrays and plain_work and kind.layout_of is Compressor.layout_of


def of_sizes(compressor: Compressor, numel: Array, density: Array | float) -> Array:
    """Return the table of segments with so many elements, of a compressor that `by_size` names."""
    layout = cast("Any", compressor.layout)(numel, density)  # in_arrays
    table = np.zeros((COUNT, len(numel)))
    table[[NUMEL, WORK]] = numel
    table[[TENSORS, SEGMENTS, CALLS, PACKED, PIECES]] = 1.0
    table[FIRST], table[ROOM] = np.multiply(4, layout.first), layout.indices
    table[REST] = layout.nbytes - table[FIRST]
    table[KEPT] = np.where(table[ROOM] > 0, np.minimum(numel, layout.values), numel)
    table[ASKED] = np.maximum(1.0, density * numel)
    return table
