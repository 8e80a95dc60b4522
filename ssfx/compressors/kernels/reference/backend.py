"""The plain-torch path: what the compiled kernels must compute, one segment after the other, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.compressors.kernels.cpu.sampling import ID_STEP, RUN, jitter, sample_of
from ssfx.compressors.kernels.interface import Bound, Moments, Rule, Tail
from ssfx.compressors.kernels.reference.blocks import block_norms as block_norms
from ssfx.compressors.kernels.reference.blocks import largest_of_chunks as largest_of_chunks
from ssfx.compressors.kernels.reference.blocks import take_blocks as take_blocks
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ssfx.wire.batch import Batch, Part

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
        a = batch.vector[part.lo : part.hi]
        bits = magnitude_bits(a)
        if bound.least >= part.numel:
            chosen = torch.arange(part.numel, device=a.device)
        else:
            given = _sampled(bits, batch, part, bound, rule) if thresholds is None else thresholds[i].view(torch.int32)
            chosen = _choose(bits, int(given), bound, rule, batch.step)
        _write(batch, part, chosen)


def moments(batch: Batch) -> Moments:
    """Return the sums over every segment; gradients are accumulated first."""
    batch.accumulate()

    def each(measure: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return torch.stack([measure(a.double()) for a in _segments(batch)])

    return Moments(
        total=each(torch.sum),
        square=each(lambda a: a.square().sum()),
        absolute=each(lambda a: a.abs().sum()),
        largest=each(lambda a: a.abs().max() if a.numel() else a.sum()),
        nonzero=each(lambda a: (a != 0).sum().double()),
    )


def count(batch: Batch, thresholds: torch.Tensor) -> torch.Tensor:
    """Return how many magnitudes of each segment reach its threshold, a float32 number; 0 where it is NaN."""
    return torch.stack([mask.sum().double() for mask in _reached(batch, thresholds)])


def tail(batch: Batch, thresholds: torch.Tensor) -> Tail:
    """Return sums over what reaches each segment's threshold, a float32 number; of nothing where it is NaN."""
    masks = _reached(batch, thresholds)
    kept = [a.abs().double()[mask] for a, mask in zip(_segments(batch), masks, strict=True)]
    return Tail(
        count=torch.stack([mask.sum().double() for mask in masks]),
        total=torch.stack([y.sum() for y in kept]),
        square=torch.stack([y.square().sum() for y in kept]),
        least=torch.stack([y.min() if y.numel() else y.new_tensor(torch.inf) for y in kept]),
    )


def select_band(batch: Batch, sure: torch.Tensor, band: torch.Tensor, skip: torch.Tensor) -> None:
    """Every segment's slots hold what reaches `sure`, filled up from what reaches `band`, ascending, then zeros.

    Of what reaches only `band` the first `skip` are passed over. All [S]; thresholds are float32 numbers, not NaN.
    """
    above, reached = _reached(batch, sure), _reached(batch, band)
    for i, part in enumerate(batch.parts):
        slots = part.layout.indices
        between = torch.nonzero(reached[i] & ~above[i]).view(-1)[int(skip[i]) :]
        chosen = torch.nonzero(above[i]).view(-1)[:slots]
        chosen = torch.cat([chosen, between[: slots - chosen.numel()]]).sort().values
        _write(batch, part, chosen)


def _segments(batch: Batch) -> list[torch.Tensor]:
    return [batch.vector[part.lo : part.hi] for part in batch.parts]


def _reached(batch: Batch, thresholds: torch.Tensor) -> list[torch.Tensor]:
    least = thresholds.float().clamp(min=0)
    bits = torch.where(least.isnan(), -1, least.view(torch.int32))
    return [(magnitude_bits(a) >= b) & (b >= 0) for a, b in zip(_segments(batch), bits, strict=True)]


def _write(batch: Batch, part: Part, chosen: torch.Tensor) -> None:
    payload, kept = batch.share(part), chosen.numel()
    payload.indices[:kept] = (chosen + part.lo + batch.base).to(torch.int32)
    payload.indices[kept:] = part.lo + batch.base
    payload.values[:kept] = batch.vector[part.lo + chosen].to(payload.values.dtype)
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
