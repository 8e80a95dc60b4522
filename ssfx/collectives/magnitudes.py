"""Selection by magnitude with a threshold that is known beforehand: what Ok-Topk and MiCRO do in every step."""

from __future__ import annotations

import math

from ssfx.compressors import Context, Layout
from ssfx.compressors.base import Payload
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.compressors.sparse import top_k
from ssfx.compressors.threshold import reaching
from ssfx.core.lazy import torch

CAP = 2
"""A rank selects at most this many times k: a guard against ties in masses and thresholds gone stale (D-29)."""


def passing(a: torch.Tensor, threshold: float, most: int) -> torch.Tensor:
    """Return the positions (int64, ascending) where flat float32 `a` reaches the threshold.

    Zeros never do. If there are more than `most`, these are the largest, ties going to the lower position.
    """
    most = min(most, a.numel())
    if most == 0:
        return torch.empty(0, dtype=torch.int64, device=a.device)
    payload = Payload.allocate(Layout(counts=1, indices=most, values=most), a.device)
    batch = Batch.single(a, payload, Context(step=0, tensor_id=0, rank=0, world_size=1, density=1.0))
    least = torch.tensor([threshold], dtype=torch.float64, device=a.device)
    kernels(a.device).select(batch, Rule((Bound(0, most, most),)), reaching(least))
    return payload.indices[: int(payload.counts)].long()


def kth_magnitude(a: torch.Tensor, k: int) -> float:
    """Return the k-th largest magnitude of flat `a`, the smallest if it has fewer; infinity for k = 0."""
    if k == 0:
        return math.inf
    return float(a[top_k(a, k)].abs().min()) if a.numel() else 0.0


def among(positions: torch.Tensor, ascending: torch.Tensor) -> torch.Tensor:
    """Return, for each of `positions`, whether it is one of the `ascending` ones; bool."""
    if not ascending.numel():
        return torch.zeros_like(positions, dtype=torch.bool)
    at = torch.searchsorted(ascending, positions).clamp_(max=ascending.numel() - 1)
    return ascending[at] == positions
