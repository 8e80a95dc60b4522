"""The plain-torch path of quantising codecs: what the compiled loops must compute, on any device, no host reads.

A batch's vector is accumulated first; then each segment's scales and packed codes are written. Where a group is not
finite its scale is NaN, so that every receiver sees it. Source: D-8, D-25.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from ssfx.wire.batch import Batch
    from ssfx.wire.payload import Payload

FIRST, SECOND = 0x21F0AAAD, 0xD35A2D97
"""Odd multipliers of the noise hash."""
RESOLUTION = 2.0**-24
_32 = 0xFFFFFFFF


def uniform(key: int, numel: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return the noise of positions 0 .. numel - 1 under a 64-bit key: float32 in [0, 1), multiples of 2^-24."""
    x = (torch.arange(numel, dtype=torch.int64, device=device) + (key & _32)) & _32  # products wrap; low bits are right
    x = (((x ^ (x >> 16)) * FIRST) & _32) ^ (key >> 32 & _32)
    x = ((x ^ (x >> 15)) * SECOND) & _32
    return (x >> 8).float() * RESOLUTION


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the bytes of `codes` (each below 2^bits), the first in the highest bits, missing ones 0."""
    per_byte = 8 // bits
    padded = torch.nn.functional.pad(codes.to(torch.uint8), (0, -codes.numel() % per_byte)).view(-1, per_byte)
    packed = torch.zeros_like(padded[:, 0])
    for j in range(per_byte):
        packed |= padded[:, j] << (8 - bits * (j + 1))
    return packed


def unpack(packed: torch.Tensor, bits: int, numel: int) -> torch.Tensor:
    """Return the first `numel` codes of `packed` as int32."""
    columns = [(packed >> (8 - bits * (j + 1))) & ((1 << bits) - 1) for j in range(8 // bits)]
    return torch.stack(columns, 1).view(-1)[:numel].int()


def levels_of(a: torch.Tensor, per_unit: torch.Tensor, top: int, noise: torch.Tensor) -> torch.Tensor:
    """Return sign(a) * min(top, |a| * per_unit rounded up with the fraction's probability) as float32.

    The limit matters: |a| * per_unit may round to more than `top`, and a level of 128 would flip the sign of a byte.
    """
    exact = a.abs() * per_unit
    below = exact.floor()
    return torch.copysign((below + (noise < exact - below)).clamp(max=top), a)


def signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: 1, or NaN for a segment that is not finite."""
    for a, payload, _ in segments(batch):
        payload.codes.copy_(pack(a >= 0, 1))
        payload.scales.copy_(1 + 0 * a.abs().max())


def signed_votes(batch: Batch) -> None:
    """Codes of two bits: 1 + sign(a). Scale: 1, or NaN for a segment that is not finite."""
    for a, payload, _ in segments(batch):
        payload.codes.copy_(pack(1 + (a > 0).int() - (a < 0).int(), 2))
        payload.scales.copy_(1 + 0 * a.abs().max())


def scaled_signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: the mean of |a|."""
    for a, payload, _ in segments(batch):
        payload.codes.copy_(pack(a >= 0, 1))
        payload.scales.copy_(a.double().abs().sum() / a.numel())


def two_means(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scales: the mean of the others and of these, 0 for an empty class."""
    for a, payload, _ in segments(batch):
        high = a >= 0
        payload.codes.copy_(pack(high, 1))
        wide, numbers = a.double(), torch.stack([(~high).sum(), high.sum()])
        totals = torch.stack([wide.where(~high, 0).sum(), wide.where(high, 0).sum()])
        payload.scales.copy_(totals / numbers.clamp(min=1))


def norms(a: torch.Tensor, bucket: int, largest: bool, out: torch.Tensor) -> None:
    """`out` holds the Euclidean norm of every bucket of `a`, or its largest |a|; NaN if it is not finite."""
    wide = a.double().abs()
    rows = torch.nn.functional.pad(wide, (0, -a.numel() % bucket)).view(-1, bucket) if bucket else wide.view(1, -1)
    found = (rows.amax(1) if largest else (rows * rows).sum(1).sqrt()).float()
    out.copy_(found.where(torch.isfinite(found), math.nan))


def rotate(a: torch.Tensor, block: int) -> None:
    """Every whole block of `a` is its product with the orthogonal Hadamard matrix; a shorter last one stays.

    The matrix is symmetric, so that a second call gives `a` back, but for rounding.
    """
    rows = a[: a.numel() // block * block].view(-1, block)
    half = 1
    while half < block:  # H_2n = [[H_n, H_n], [H_n, -H_n]], from the smallest to the largest
        left, right = rows.view(-1, block // half // 2, 2, half).unbind(2)
        total, difference = left + right, left - right
        left.copy_(total)
        right.copy_(difference)
        half *= 2
    rows.mul_(1 / math.sqrt(block))


def levels(batch: Batch, bits: int, bucket: int, largest: bool, nearest: bool = False, rotation: int = 0) -> None:
    """Codes: signed levels of `bits` bits. Scales: each bucket's Euclidean norm, or its largest |a|; 0: one bucket.

    8 bits are a two's complement byte, fewer are offset by the highest level. Rounded at random, or to the nearest.
    `rotation`: a segment's blocks of so many elements are turned first, as `rotate` does; 0: none are.
    """
    top, offset = (1 << bits - 1) - 1, offset_of(bits)
    for a, payload, key in segments(batch):
        if rotation:
            a = a.clone()
            rotate(a, rotation)
        # The norm of a bucket: |v|_2 in QSGD's section 3.1, the largest magnitude in its experiments.
        norms(a, bucket, largest, payload.scales)
        finite, size, n = torch.isfinite(payload.scales), bucket or a.numel(), a.numel()
        per_unit = per_unit_of(payload.scales.where(finite, 0), top).repeat_interleave(size)[:n]
        # xi_i(v, s): l / s or (l + 1) / s, with s |v_i| / |v| - l as the chance of the latter.
        noise = torch.full_like(a, 0.5) if nearest else uniform(key, n, a.device)
        level = levels_of(a, per_unit, top, noise).where(finite.repeat_interleave(size)[:n], 0)
        payload.codes.copy_(pack((level.int() + offset) & 255, bits))


def add_signs(payload: Payload, low: torch.Tensor, high: torch.Tensor, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: `low` or `high` (float32 [1])."""
    out.add_(torch.where(unpack(payload.codes, 1, out.numel()) > 0, high, low))


def add_levels(payload: Payload, bits: int, steps: torch.Tensor, bucket: int, out: torch.Tensor) -> None:
    """Add to `out` each level times the step (float32 [G]) of its bucket."""
    size, n = bucket or out.numel(), out.numel()
    codes = payload.codes.view(torch.int8)[:n].int() if bits == 8 else unpack(payload.codes, bits, n)
    out.add_((codes - offset_of(bits)).float() * steps.repeat_interleave(size)[:n])


def offset_of(bits: int) -> int:
    """Return the code of level 0."""
    return 0 if bits == 8 else (1 << bits - 1) - 1


def per_unit_of(norms: torch.Tensor, top: int) -> torch.Tensor:
    """Return top / norm in float32, 0 where the norm is 0, and a finite number where it is denormal."""
    exact = (top / norms.double()).clamp(max=torch.finfo(torch.float32).max)
    return exact.where(norms > 0, 0).float()


def segments(batch: Batch) -> Iterator[tuple[torch.Tensor, Payload, int]]:
    """Yield each segment that has elements: its part of the accumulated vector, its payload and its noise key."""
    batch.accumulate()
    for part in batch.parts:
        if part.numel:
            yield batch.vector[part.lo : part.hi], batch.share(part), batch.key(part.tensor_id)
