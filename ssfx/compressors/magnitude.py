"""Selection by magnitude as functions of one tensor: exact top-k and everything above a threshold, ascending."""

from __future__ import annotations

from ssfx.compressors.base import Context, Layout, Payload
from ssfx.compressors.batch import Batch
from ssfx.compressors.kernels import Bound, Rule, kernels
from ssfx.core.lazy import torch


def top_k(a: torch.Tensor, k: int) -> torch.Tensor:
    """Return the positions (int64) of the `k` largest magnitudes of flat float32 `a`; ties go to the lower position."""
    k = min(k, a.numel())
    payload = Payload.allocate(Layout(indices=k, values=k), a.device)
    ctx = Context(step=0, tensor_id=0, rank=0, world_size=1, density=1.0)
    rule = Rule((Bound(k, k, k),), zeros=True)
    kernels(a.device).select(Batch.single(a, payload, ctx), rule)
    return payload.indices.long()


def at_least(a: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the positions (int64) where the magnitude of flat `a` is positive and at least `threshold`."""
    magnitude = a.abs()
    return torch.nonzero((magnitude >= threshold) & (magnitude > 0)).view(-1)
