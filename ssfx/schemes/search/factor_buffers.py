"""ACP-SGD's fusion rule: buffers are as full of factors as DDP's are of gradients."""

from collections.abc import Sequence

from ssfx.compressors.lowrank import LowRankOptions, split

_ITEM_BYTES = 4


def factor_bytes(shape: tuple[int, ...], options: LowRankOptions) -> tuple[int, int]:
    """Return the bytes that one tensor adds to a message of P factors and to one of Q factors.

    A tensor that is not worth factoring travels in both as it is.
    """
    parts = split((shape,), options)
    return _ITEM_BYTES * (parts.left + parts.rest), _ITEM_BYTES * (parts.right + parts.rest)


def threshold_bytes(nbytes: Sequence[float], model_bytes: float, buffer_bytes: float) -> float:
    """Return the size of a compressed buffer: `buffer_bytes` times the share of the model's bytes that is sent."""
    return buffer_bytes * sum(nbytes) / model_bytes if model_bytes else 0.0


def buffer_groups(nbytes: Sequence[float], limit_bytes: float) -> list[range]:
    """Return the positions of each buffer: a tensor that would exceed the limit opens the next one.

    A larger tensor is alone in a buffer; limit 0 gives every tensor its own. Source: D-40.
    """
    groups: list[range] = []
    start, filled = 0, 0.0
    for i, size in enumerate(nbytes):
        if filled and filled + size > limit_bytes:
            groups.append(range(start, i))
            start, filled = i, 0.0
        filled += size
    if start < len(nbytes):
        groups.append(range(start, len(nbytes)))
    return groups
