"""Where shards lie in the flat buffers that torch gathers and reduces: one after the other, with their padding."""

from collections.abc import Mapping, Sequence

import torch


def places_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int]]:
    """Return where every shard lies in the buffer of one rank, by the padded shapes in their order."""
    places, offset = {}, 0
    for name, shape in shapes.items():
        numel = torch.Size(shape).numel()
        places[name] = (offset, offset + numel)
        offset += numel
    return places


def runs_of(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same places with those that follow each other joined."""
    runs: list[tuple[int, int]] = []
    for lo, hi in places:
        if runs and runs[-1][1] == lo:
            runs[-1] = (runs[-1][0], hi)
        else:
            runs.append((lo, hi))
    return runs
