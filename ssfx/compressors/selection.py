"""Selection by magnitude: exact top-k, threshold search and sampling, positions always ascending.

On the CPU exact top-k first takes a threshold from a small sample that leaves a few more than k candidates, finds them
in one pass over blocks that stay in the cache, and chooses exactly among them. Numpy works on views of the tensor's
memory, where it is two to five times faster than the torch operators. On other devices torch operators of static size
do it without waiting for the host. Source: codec specification, sections 1.11, 1.13, 4.2, 10.6.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, TypeVar

from ssfx.lazy import numpy as np
from ssfx.lazy import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Positions = NDArray[np.int64]

RUN = 16  # consecutive floats of one sample run: a cache line
TAIL = 64  # samples that should lie above a sampled threshold: its count is then right within about 12 %
SAMPLE_FRACTION = 0.01
_DIRECT = 1 << 17  # up to so many elements one partition of everything is faster than sampling first
_BLOCK = 1 << 16  # elements per cache-resident block
_SMALLEST = 2.0**-149  # the smallest positive float32: "at least this" means "not zero"

_workspace = threading.local()
Vector = TypeVar("Vector", "torch.Tensor", "Floats", "Positions")


def top_k(a: torch.Tensor, k: int) -> torch.Tensor:
    """Return the positions (int64) of the `k` largest magnitudes of flat `a`; ties go to the lower position."""
    if k >= a.numel():
        return torch.arange(a.numel(), device=a.device)
    if a.device.type != "cpu":
        return top_k_static(a, k)
    return torch.from_numpy(top_k_array(a.numpy(), k))


def top_k_static(a: torch.Tensor, k: int) -> torch.Tensor:
    """As `top_k`, in torch operators whose sizes do not depend on the data: a device never waits for the host."""
    magnitude = a.abs()
    smallest = torch.topk(magnitude, k, sorted=False).values.amin()
    above = magnitude > smallest
    tied = magnitude == smallest
    keep = above | (tied & (tied.cumsum(0) <= k - above.sum()))
    return torch.nonzero_static(keep, size=k).view(-1)


def at_least(a: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the positions (int64) where the magnitude of flat `a` is positive and at least `threshold`."""
    if a.device.type == "cpu":
        return torch.from_numpy(at_least_array(a.numpy(), threshold))
    magnitude = a.abs()
    return torch.nonzero((magnitude >= threshold) & (magnitude > 0)).view(-1)


def top_k_array(a: Floats, k: int) -> Positions:
    """As `top_k`, for 0 < k < len(a)."""
    if len(a) > _DIRECT:
        # four standard deviations of the sample's count above k: the exact choice rarely has to look at everything
        margin = 1 + 4 / math.sqrt(max(TAIL, SAMPLE_FRACTION * k))
        candidates = at_least_array(a, sampled_threshold(a, min(1.0, margin * k / len(a)), SAMPLE_FRACTION))
        if len(candidates) >= k:
            return candidates[_largest(np.abs(a[candidates]), k)]
    return _largest(np.abs(a), k)


def at_least_array(a: Floats, threshold: float) -> Positions:
    """As `at_least`."""
    magnitude, reached = _block_workspace()
    threshold = max(threshold, _SMALLEST)
    found = []
    for start in range(0, len(a), _BLOCK):
        block = a[start : start + _BLOCK]
        size = len(block)
        np.abs(block, out=magnitude[:size])
        np.greater_equal(magnitude[:size], threshold, out=reached[:size])
        positions = np.flatnonzero(reached[:size])
        positions += start
        found.append(positions)
    return np.concatenate(found)


def sampled_threshold(a: Floats, density: float, fraction: float, offset: int = 0) -> float:
    """Return a magnitude that about `density` of `a` reaches, from a sample of at least `fraction` of it.

    The sample is runs of RUN floats at equal distances, shifted by `offset`, and holds at least TAIL / density
    elements, or everything when that is most of `a`.
    """
    sample = np.abs(sample_runs(a, density, fraction, offset)).ravel()
    rank = len(sample) - sample_rank(len(sample), density)
    return float(np.partition(sample, rank)[rank])


def sample_runs(a: Vector, density: float, fraction: float, offset: int) -> Vector:
    """Return the sample of `sampled_threshold` as a view [runs, RUN], or all of `a`."""
    runs = math.ceil(max(fraction * len(a), TAIL / density) / RUN)
    stride = len(a) // runs
    if stride < 2 * RUN:
        return a
    start = offset % (stride - RUN + 1)
    return a[: runs * stride].reshape(runs, stride)[:, start : start + RUN]


def sample_rank(size: int, density: float) -> int:
    """Return how many of `size` samples should reach the threshold."""
    return min(size, max(1, math.ceil(size * density - 1e-6)))


def _largest(magnitude: Floats, k: int) -> Positions:
    cut = len(magnitude) - k
    smallest = np.partition(magnitude, cut)[cut]
    keep = magnitude > smallest
    missing = k - np.count_nonzero(keep)
    keep[np.flatnonzero(magnitude == smallest)[:missing]] = True
    return np.flatnonzero(keep)


def _block_workspace() -> tuple[Floats, NDArray[np.bool_]]:
    if not hasattr(_workspace, "blocks"):
        _workspace.blocks = (np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.bool_))
    blocks: tuple[Floats, NDArray[np.bool_]] = _workspace.blocks
    return blocks
