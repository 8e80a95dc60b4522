"""Sums over ranks as gloo's ring adds them, so that sums in one process equal those of real ranks in every bit.

Floating-point sums depend on their order. Gloo cuts a tensor into one chunk a rank. Chunk c starts at rank c - 1 and
goes down the ring, c - 2, c - 3, ..., to rank c, each of which adds its own part; every partial sum is rounded to the
tensor's dtype. Torch's reduce-scatter over gloo is this sum, of which each rank keeps a part. NCCL adds in other
orders, by topology and size. Source: gloo/allreduce.cc, `ring`; compared in test_local_comm.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssfx.core.lazy import torch

MAX_SEGMENT_BYTES = 1 << 20
"""Longest piece that gloo sends at once."""


def chunk_numel(numel: int, item_bytes: int, ranks: int) -> int:
    """Return the elements of a chunk; the last chunks may be shorter, or empty."""
    total_bytes = numel * item_bytes
    longest_bytes = MAX_SEGMENT_BYTES // item_bytes * item_bytes
    segments = _up(max(-(-total_bytes // longest_bytes), 2 * ranks), ranks)
    segment_bytes = _up(-(-total_bytes // segments), item_bytes)
    return segments // ranks * segment_bytes // item_bytes


def ring_sum(tensors: Sequence[torch.Tensor], op: str = "sum") -> torch.Tensor:
    """Return the sum, or the maximum, over flat tensors by rank; they must be on one device and are not changed."""
    ranks, total = len(tensors), torch.empty_like(tensors[0])
    size = chunk_numel(total.numel(), total.element_size(), ranks)
    for chunk, out in enumerate(total.split(size) if size else ()):
        lo, hi = chunk * size, chunk * size + out.numel()
        first, *others = (tensors[(chunk - step) % ranks][lo:hi] for step in range(1, ranks + 1))
        out.copy_(first)
        for other in others:
            if op == "max":
                # As std::max(own, what came): what came only where it is larger, so that a NaN of its own stays.
                torch.where(other < out, out, other, out=out)
            else:
                torch.add(other, out, out=out)
    return total


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
