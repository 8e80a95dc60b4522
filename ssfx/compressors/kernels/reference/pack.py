"""The plain-torch path of quantising codecs: what the compiled loops must compute, on any device, no host reads.

A batch's vector is accumulated first; then each segment's scales and packed codes are written. Where a group is not
finite its scale is NaN, so that every receiver sees it. Source: D-8, D-25.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ssfx.compressors.kernels.interface import LARGEST_FP8, SMALLEST_SCALE, Coding, Rows
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


def rows_of(a: torch.Tensor, bucket: int, pad: float = 0) -> torch.Tensor:
    """Return the buckets of `a` as the rows of a matrix; the last one is filled up, and 0 makes one row of all."""
    return torch.nn.functional.pad(a, (0, -a.numel() % bucket), value=pad).view(-1, bucket) if bucket else a.view(1, -1)


def norms(a: torch.Tensor, bucket: int, largest: bool) -> torch.Tensor:
    """Return the Euclidean norm of every bucket of `a`, or its largest |a|; NaN if it is not finite."""
    rows = rows_of(a.double().abs(), bucket)
    found = (rows.amax(1) if largest else (rows * rows).sum(1).sqrt()).float()
    return found.where(torch.isfinite(found), math.nan)


def means(a: torch.Tensor, bucket: int) -> torch.Tensor:
    """Return [G, 2]: by bucket the mean of what is below 0 and of the rest, 0 for none; NaN if one is not finite."""
    wide, high = rows_of(a, bucket).double(), rows_of(a, bucket, math.nan) >= 0  # what fills up is in neither class
    low = rows_of(a, bucket, math.nan) < 0
    found = torch.stack([wide.where(of, 0).sum(1) / of.sum(1).clamp(min=1) for of in (low, high)], 1).float()
    finite = torch.isfinite(wide).all(1, keepdim=True) & torch.isfinite(found).all(1, keepdim=True)
    return found.where(finite, math.nan)


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


def encode(batch: Batch, coding: Coding, rows: Rows | None = None, *, takes: bool = False) -> None:
    """Scales and codes of every segment, as `coding` says; `takes`: the vector is left with what was not sent.

    With `rows`, a batch of one segment encodes their sum in the place of its vector, and what is not sent of the sum is
    added to the vector.
    """
    for a, payload, key in segments(batch):
        exact = a
        if rows is not None:
            exact = torch.zeros_like(a)
            add_rows(rows, coding, exact)
        payload.scales.copy_(encoded(exact, coding, key, payload.codes))
        if takes:
            left = exact + decoded(payload.scales, payload.codes, coding, a.numel(), -1.0)
            a.copy_(left) if rows is None else a.add_(left)


def encoded(a: torch.Tensor, coding: Coding, key: int, codes: torch.Tensor) -> torch.Tensor:
    """Write the codes of `a` and return its scales, flat."""
    n, size = a.numel(), coding.bucket or a.numel()
    if coding.rotation:
        a = a.clone()
        rotate(a, coding.rotation)
    if coding.kind == "means":
        codes.copy_(pack(a >= 0, 1))
        return means(a, coding.bucket).view(-1)
    # The norm of a bucket: |v|_2 in QSGD's section 3.1, the largest magnitude in its experiments.
    scales = norms(a, coding.bucket, coding.largest)
    finite = torch.isfinite(scales)
    known, live = scales.where(finite, 0), finite.repeat_interleave(size)[:n]
    if coding.kind == "fp8":
        scales = (known / torch.full_like(known, LARGEST_FP8)).clamp(min=SMALLEST_SCALE).where(finite, math.nan)
        scaled = (a / scales.repeat_interleave(size)[:n]).where(live, 0)
        codes.copy_(scaled.to(torch.float8_e4m3fn).view(torch.uint8))
        return scales
    per_unit = per_unit_of(known, coding.top).repeat_interleave(size)[:n]
    # xi_i(v, s): l / s or (l + 1) / s, with s |v_i| / |v| - l as the chance of the latter.
    noise = torch.full_like(a, 0.5) if coding.nearest else uniform(key, n, a.device)
    level = levels_of(a, per_unit, coding.top, noise).where(live, 0)
    codes.copy_(pack((level.int() + coding.offset) & 255, coding.bits))
    return scales


def decoded(scales: torch.Tensor, codes: torch.Tensor, coding: Coding, n: int, scale: float) -> torch.Tensor:
    """Return `scale` times what n codes and the scales of their buckets stand for."""
    size, steps = coding.bucket or n, scales * coding.unit(scale)
    if coding.kind == "means":
        low, high = steps.view(-1, 2).repeat_interleave(size, 0)[:n].unbind(1)
        found = torch.where(unpack(codes, 1, n) > 0, high, low)
    else:
        if coding.kind == "fp8":
            numbers = codes[:n].view(torch.float8_e4m3fn).float()
        else:
            whole = codes.view(torch.int8)[:n].int() if coding.bits == 8 else unpack(codes, coding.bits, n)
            numbers = (whole - coding.offset).float()
        found = numbers * steps.repeat_interleave(size)[:n]
    if coding.rotation:
        rotate(found, coding.rotation)
    return found


def add(payload: Payload, coding: Coding, out: torch.Tensor, scale: float = 1.0) -> None:
    """Add `scale` times what a payload stands for to `out`."""
    if out.numel():
        out.add_(decoded(payload.scales, payload.codes, coding, out.numel(), scale))


def add_rows(rows: Rows, coding: Coding, out: torch.Tensor, *, fresh: bool = False) -> None:
    """Add what the payloads stand for to `out`, one after the other; `fresh`: to zeros in its place."""
    if fresh:
        out.zero_()
    count = coding.scales * -(-out.numel() // (coding.bucket or out.numel()))
    for row in rows.data:
        scales = row[: 4 * count].view(torch.float32)
        out.add_(decoded(scales, row[rows.codes_at :], coding, out.numel(), 1.0))


def add_signs(payload: Payload, low: torch.Tensor, high: torch.Tensor, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: `low` or `high` (float32 [1])."""
    out.add_(torch.where(unpack(payload.codes, 1, out.numel()) > 0, high, low))


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
