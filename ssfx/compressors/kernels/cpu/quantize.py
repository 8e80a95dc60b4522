"""Quantising codecs on the CPU: a compiled call fills the codes of all segments of a batch.

Same functions and results as `kernels.reference.pack`. Codes and noise of a chunk stay in the first-level cache until
they are packed. Levels and signs find their scales on the way, others find them in a pass of their own. Source: D-25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.compressors.kernels.cpu.codes import (
    CHUNK,
    LARGEST,
    add_levels,
    add_signs,
    in_steps,
    largest_key,
    level_codes,
    pack,
    pack_signs,
    sum_of_squares,
    sums_by_sign,
    vote_codes,
)
from ssfx.compressors.kernels.cpu.hadamard import rotate, rotated
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.random_keys import key, signed
from ssfx.compressors.kernels.reference.pack import (
    FIRST,
    RESOLUTION,
    SECOND,
    offset_of,
    segments,
)
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ssfx.wire.batch import Batch

__all__ = [
    "add_levels",
    "add_signs",
    "levels",
    "norms",
    "rotate",
    "scaled_signs",
    "signed_votes",
    "signs",
    "two_means",
]

LO, NUMEL, SCALE, CODE, TENSOR = range(5)
"""Columns of the segment table: where a segment's numbers, scales and codes begin, and the tensor of its noise."""
_EUCLIDEAN, _LARGEST, _MEAN = range(3)
"""What the scale of a bucket is: its norm, largest or mean magnitude."""
_NAN = np.float32(np.nan)
_MOST = np.finfo(np.float32).max


def signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: 1, or NaN for a segment that is not finite."""
    _run(batch, _signs)


def signed_votes(batch: Batch) -> None:
    """Codes of two bits: 1 + sign(a). Scale: 1, or NaN for a segment that is not finite."""
    _run(batch, _votes)


def scaled_signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: the mean of |a|."""
    signs(batch)
    for a, payload, _ in segments(batch):
        _norms(a.numpy(), a.numel(), _MEAN, payload.scales.numpy())


def two_means(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scales: the mean of the others and of these, 0 for an empty class."""
    signs(batch)
    for a, payload, _ in segments(batch):
        above, below, number = sums_by_sign(a.numpy())
        payload.scales[0], payload.scales[1] = below / max(1, a.numel() - number), above / max(1, number)


def levels(batch: Batch, bits: int, bucket: int, largest: bool, nearest: bool = False, rotation: int = 0) -> None:
    """Codes: signed levels of `bits` bits. Scales: each bucket's Euclidean norm, or its largest |a|; 0: one bucket.

    8 bits are a two's complement byte, fewer are offset by the highest level. Rounded at random, or to the nearest.
    `rotation`: a segment's blocks of so many elements are turned first, as `rotate` does; 0: none are.
    """
    top, kind = (1 << bits - 1) - 1, _LARGEST if largest else _EUCLIDEAN
    _run_at_random(batch, _levels, bits, top, offset_of(bits), bucket, kind, nearest, rotation)


def norms(a: torch.Tensor, bucket: int, largest: bool, out: torch.Tensor) -> None:
    """`out` holds the Euclidean norm of every bucket of `a`, or its largest |a|; NaN if it is not finite."""
    _norms(a.numpy(), bucket or max(1, a.numel()), _LARGEST if largest else _EUCLIDEAN, out.numpy())


def _run(batch: Batch, kernel: Callable[..., None], *settings: Any) -> None:
    batch.accumulate()
    table: NDArray[np.int64] = batch.once("segments", lambda: _table(batch))
    payload = batch.payload
    kernel(table, batch.vector.numpy(), payload.scales.numpy(), payload.codes.numpy(), *settings)


def _run_at_random(batch: Batch, kernel: Callable[..., None], *settings: Any) -> None:
    _run(batch, kernel, signed(batch.seed), batch.step, batch.rank, *settings)


def _table(batch: Batch) -> NDArray[np.int64]:
    rows = [(p.lo, p.numel, p.starts.scales, p.starts.codes, p.tensor_id) for p in batch.parts if p.numel]
    return np.array(rows, np.int64).reshape(-1, TENSOR + 1)


@compiled()
def _signs(table, vector, scales, codes):  # type: ignore[no-untyped-def]
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        largest = np.int32(0)
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            largest = max(largest, largest_key(chunk))
            pack_signs(chunk, codes[code + start // 8 :])
        scales[table[s, SCALE]] = np.float32(1) if largest <= LARGEST else _NAN


@compiled()
def _votes(table, vector, scales, codes):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        largest = np.int32(0)
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            largest = max(largest, largest_key(chunk))
            vote_codes(chunk, waiting[: len(chunk)])
            pack(waiting[: len(chunk)], 2, codes[code + start // 4 :])
        scales[table[s, SCALE]] = np.float32(1) if largest <= LARGEST else _NAN


@compiled()
def _float(key):  # type: ignore[no-untyped-def]
    """Return the float32 whose bits are `key`."""
    return np.int32(key).view(np.float32)


@compiled()
def _norm(a, kind):  # type: ignore[no-untyped-def]
    """Return the largest or the mean |a| or the Euclidean norm as float32, NaN if it is not finite."""
    if kind == _MEAN:
        above, below, _ = sums_by_sign(a)
        return np.float32((above - below) / len(a))
    if kind == _LARGEST:
        found = largest_key(a)
        return _float(found) if found <= LARGEST else _NAN
    norm = np.float32(np.sqrt(sum_of_squares(a)))
    return norm if np.isfinite(norm) else _NAN


@compiled()
def _norms(a, size, kind, out):  # type: ignore[no-untyped-def]
    for g in range(len(out)):
        out[g] = _norm(a[g * size : (g + 1) * size], kind)


@compiled()
def _per_unit(norm, top):  # type: ignore[no-untyped-def]
    """Return top / norm in float32: 0 for a norm of 0, and finite where it is denormal."""
    return np.float32(min(np.float64(top) / norm, _MOST)) if norm > 0 else np.float32(0)


@compiled()
def _levels(  # type: ignore[no-untyped-def]
    table, vector, scales, codes, seed, step, rank, bits, most, offset, bucket, kind, nearest, rotation
):
    waiting, noise, exact = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32)
    top, zero = np.int32(most), np.int32(offset)
    for s in range(len(table)):
        n, scale, code = table[s, NUMEL], table[s, SCALE], table[s, CODE]
        noise_key = key(seed, table[s, TENSOR], step, rank)
        a = vector[table[s, LO] : table[s, LO] + n]
        if rotation:
            a = rotated(a, rotation)
        size = bucket if bucket else n
        end, norm = 0, np.float32(0)
        for start in range(0, n, CHUNK):
            chunk = a[start : start + CHUNK]
            at, stop = start, start + len(chunk)
            while at < stop:
                if at == end:  # where the next bucket begins
                    end = min(at + size, n)
                    norm = scales[scale + at // size] = _norm(a[at:end], kind)
                upto = min(end, stop)
                if not np.isfinite(norm):
                    exact[at - start : upto - start] = 0
                else:
                    in_steps(a[at:upto], _per_unit(norm, top), exact[at - start : upto - start])
                at = upto
            made = codes[code + start : code + stop] if bits == 8 else waiting[: len(chunk)]
            if nearest:
                noise[: len(chunk)] = np.float32(0.5)
            else:
                uniform(noise_key, start, noise[: len(chunk)])
            level_codes(chunk, exact, noise, top, zero, made)
            if bits < 8:
                pack(made, bits, codes[code + start * bits // 8 :])


_FIRST, _SECOND = np.uint32(FIRST), np.uint32(SECOND)
_RESOLUTION = np.float32(RESOLUTION)


@compiled()
def _uniform(first, high, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        x = np.uint32(first + np.uint32(i))
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * _FIRST)
        x = np.uint32(x ^ high)
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * _SECOND)
        out[i] = np.float32(np.int32(x >> np.uint32(8))) * _RESOLUTION


@compiled()
def uniform(key, start, out):  # type: ignore[no-untyped-def]
    """Write the numbers of positions start, start + 1, ... into `out` (float32, in [0, 1), multiples of 2^-24).

    A number depends on a 64-bit key and a position and on nothing else, so it is the same on every device and after a
    restart. The hash is two rounds of multiply and shift with the key's halves put in before each. Source: D-8.

    The loop is a function of its own: with 64-bit numbers beside it, its vectors would be half as wide.
    """
    wide = np.uint64(key)
    low, high = np.uint32(wide & np.uint64(0xFFFFFFFF)), np.uint32(wide >> np.uint64(32))
    _uniform(np.uint32(low + np.uint32(start)), high, out)
