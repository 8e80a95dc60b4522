"""The plain-torch path: what the compiled kernels must compute, one segment after the other, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.kernels import Bound, Rule
from ssfx.kernels.sampling import ID_STEP, RUN, jitter, sample_of
from ssfx.lazy import torch

if TYPE_CHECKING:
    from ssfx.compressors.batch import Batch, Part

_LARGEST = 0x7F7FFFFF  # bits of the largest finite float32


def select(batch: Batch, rule: Rule, thresholds: torch.Tensor | None = None) -> None:
    """Every segment's slots hold what `rule` selects, ascending, then zeros; gradients are accumulated first.

    `thresholds` [S]: magnitudes that are selected; without them each segment samples its own. A NaN or Inf is always
    selected, so the payload tells every receiver.
    """
    batch.accumulate()
    if thresholds is not None:
        thresholds = torch.nan_to_num(thresholds.float(), nan=0.0).clamp(min=0)
    for i, (part, bound) in enumerate(zip(batch.parts, rule.bounds, strict=True)):
        a, payload = batch.vector[part.lo : part.hi], batch.share(part)
        bits = magnitude_bits(a)
        if bound.least >= part.numel:
            chosen = torch.arange(part.numel, device=a.device)
        else:
            given = _sampled(bits, batch, part, bound, rule) if thresholds is None else thresholds[i].view(torch.int32)
            chosen = _choose(bits, int(given), bound, rule, batch.step)
        kept = chosen.numel()
        payload.indices[:kept] = (chosen + part.lo + batch.base).to(torch.int32)
        payload.indices[kept:] = part.lo + batch.base
        payload.values[:kept] = a[chosen].to(payload.values.dtype)
        payload.values[kept:] = 0
        payload.counts.fill_(kept)


def magnitude_bits(a: torch.Tensor) -> torch.Tensor:
    """Return int32 numbers that order like magnitudes of float32 `a`, NaN above all."""
    return a.view(torch.int32) & 0x7FFFFFFF


def largest(bits: torch.Tensor, candidates: torch.Tensor, keep: int) -> torch.Tensor:
    """Return the `keep` candidates with the largest bits, ties to the lower position, ascending."""
    order = torch.sort(bits[candidates], descending=True, stable=True).indices[:keep]
    return candidates[order].sort().values


def _choose(bits: torch.Tensor, given: int, bound: Bound, rule: Rule, step: int) -> torch.Tensor:
    floor = 0 if rule.zeros else 1
    keep = bound.most
    chosen = torch.nonzero(bits >= min(max(given, floor), _LARGEST)).view(-1)
    if chosen.numel() < bound.least:
        keep = bound.wanted
        chosen = torch.nonzero(bits >= floor).view(-1)
    if chosen.numel() > keep:
        chosen = largest(bits, chosen, keep)
    if not chosen.numel() and rule.rotate and bool(bits.any()):
        offset = step * bound.wanted
        chosen = ((torch.arange(bound.wanted, device=bits.device) + offset) % bits.numel()).sort().values
    return chosen


def _sampled(bits: torch.Tensor, batch: Batch, part: Part, bound: Bound, rule: Rule) -> int:
    sample = sample_of(part.numel, bound, rule)
    seed = (batch.key(0) + part.tensor_id * ID_STEP) & 0xFFFFFFFF
    ends = torch.tensor([hi - part.lo for _, hi in part.pieces])
    span = sample.stride - RUN + 1
    drawn = []
    for run in range(sample.runs):
        at = run * sample.stride + (jitter(seed, run, span) if sample.stride > RUN else 0)
        end = int(ends[torch.searchsorted(ends, at, right=True)])  # a run ends with its tensor
        drawn.append(bits[at : min(at + RUN, end)])
    looked_at = torch.cat(drawn)
    rank = min(looked_at.numel(), max(1, sample.rank * looked_at.numel() // (sample.runs * RUN)))
    return int(looked_at.sort(descending=True).values[rank - 1])
