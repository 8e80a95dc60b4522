"""The lanes of a plan as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ssfx.simulator.pricing.message_sizes import lane_bytes

if TYPE_CHECKING:
    from ssfx.planning.plan import Lane, Plan

COLUMNS = (
    "bucket",
    "lane",
    "collective",
    "segments",
    "tensors",
    "elements",
    "compressor",
    "density",
    "place",
    "payload",
)
RIGHT = {"bucket", "lane", "segments", "tensors", "elements", "density", "payload"}


def lanes_of(made: Plan) -> Iterator[Sequence[str]]:
    """Yield the row of COLUMNS of every lane."""
    for (bucket, position), lane in made.lanes():
        yield (
            str(bucket), str(position), lane.collective, str(len(lane.segments)), str(len(lane.tensors)),
            f"{made.numel(lane):,}", _joined(segment.compressor or "dense" for segment in lane.segments),
            _densities(lane), _joined(segment.placement for segment in lane.segments),
            bytes_text(lane_bytes(made, lane)),
        )  # fmt: skip


def _joined(words: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(words))


def _densities(lane: Lane) -> str:
    found = sorted({segment.density for segment in lane.segments})
    return f"{found[0]:.3g}" if len(found) == 1 else f"{found[0]:.3g}..{found[-1]:.3g}"


def bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit that it fills."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
