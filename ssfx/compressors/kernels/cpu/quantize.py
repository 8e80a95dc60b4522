"""Quantising codecs on the CPU: a compiled call fills the codes of all segments of a batch.

Same functions and results as `kernels.reference.pack`. A chunk stays in the first-level cache from its scales to its
packed codes, and until what was sent is taken out of it: one pass over the vector. Source: D-25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ssfx.compressors.kernels.cpu.chunks import (
    FP8,
    KINDS,
    LEVELS,
    MEAN,
    MEANS,
    NAN,
    add_chunk,
    find_scales,
    floats,
    levels,
    norm_of,
    uniform,
)
from ssfx.compressors.kernels.cpu.codes import CHUNK, LARGEST, add_signs, largest_key, pack, pack_signs, vote_codes
from ssfx.compressors.kernels.cpu.hadamard import rotate_blocks
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.random_keys import key, signed
from ssfx.compressors.kernels.reference.pack import segments
from ssfx.core.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ssfx.compressors.kernels.interface import Coding, Rows
    from ssfx.wire.batch import Batch
    from ssfx.wire.payload import Payload

__all__ = ["add", "add_rows", "add_signs", "encode", "scaled_signs", "signed_votes", "signs"]

LO, NUMEL, SCALE, CODE, TENSOR = range(5)
"""Columns of the segment table: where a segment's numbers, scales and codes begin, and the tensor of its noise."""
LARGEST_CHUNK = 1 << 16
"""Elements of buckets and rotated blocks that begin together; of more a segment is one chunk."""
_NO_ROWS = np.empty((0, 0), np.uint8)


def signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: 1, or NaN for a segment that is not finite."""
    _run(batch, _signs, False)


def signed_votes(batch: Batch) -> None:
    """Codes of two bits: 1 + sign(a). Scale: 1, or NaN for a segment that is not finite."""
    _run(batch, _signs, True)


def scaled_signs(batch: Batch) -> None:
    """Codes: 1 where a >= 0. Scale: the mean of |a|."""
    signs(batch)
    for a, payload, _ in segments(batch):
        payload.scales[0] = float(norm_of(a.numpy(), MEAN))


def encode(batch: Batch, coding: Coding, rows: Rows | None = None, *, takes: bool = False) -> None:
    """Scales and codes of every segment, as `coding` says; `takes`: the vector is left with what was not sent.

    With `rows`, a batch of one segment encodes their sum in the place of its vector, and what is not sent of the sum is
    added to the vector.
    """
    data, codes_at = (rows.data.numpy(), rows.codes_at) if rows is not None else (_NO_ROWS, 0)
    noise = signed(batch.seed), batch.step, batch.rank
    _run(batch, _encode, data, codes_at, *noise, *_numbers(coding), coding.largest, coding.nearest, takes)


def add(payload: Payload, coding: Coding, out: torch.Tensor, scale: float = 1.0) -> None:
    """Add `scale` times what a payload stands for to `out`."""
    scales, codes = payload.scales.numpy(), payload.codes.numpy()
    if out.numel():
        _add(scales, codes, *_numbers(coding), np.float32(coding.unit(scale)), out.numpy())


def add_rows(rows: Rows, coding: Coding, out: torch.Tensor, *, fresh: bool = False) -> None:
    """Add what the payloads stand for to `out`, one after the other; `fresh`: to zeros in its place."""
    _add_rows(rows.data.numpy(), rows.codes_at, *_numbers(coding), fresh, out.numpy())


def _numbers(coding: Coding) -> tuple[int, ...]:
    """Return a coding as kernels take it: kind, bits, highest level, code of level 0, bucket, rotation, chunk."""
    period = coding.period() or (8 if not coding.rotation else 0)
    chunk = period * max(1, CHUNK // period) if 0 < period <= LARGEST_CHUNK else 0
    return KINDS.index(coding.kind), coding.bits, coding.top, coding.offset, coding.bucket, coding.rotation, chunk


def _run(batch: Batch, kernel: Callable[..., None], *settings: Any) -> None:
    batch.accumulate()
    table: NDArray[np.int64] = batch.once("segments", lambda: _table(batch))
    payload = batch.payload
    kernel(table, batch.vector.numpy(), payload.scales.numpy(), payload.codes.numpy(), *settings)


def _table(batch: Batch) -> NDArray[np.int64]:
    rows = [(p.lo, p.numel, p.starts.scales, p.starts.codes, p.tensor_id) for p in batch.parts if p.numel]
    return np.array(rows, np.int64).reshape(-1, TENSOR + 1)


@compiled()
def _signs(table, vector, scales, codes, votes):  # type: ignore[no-untyped-def]
    waiting, per_byte = np.empty(CHUNK, np.uint8), 4 if votes else 8
    for s in range(len(table)):
        n, code = table[s, NUMEL], table[s, CODE]
        a = vector[table[s, LO] : table[s, LO] + n]
        largest = np.int32(0)
        for start in range(0, n, CHUNK):
            chunk, into = a[start : start + CHUNK], codes[code + start // per_byte :]
            largest = max(largest, largest_key(chunk))
            if votes:
                vote_codes(chunk, waiting[: len(chunk)])
                pack(waiting[: len(chunk)], 2, into)
            else:
                pack_signs(chunk, into)
        scales[table[s, SCALE]] = np.float32(1) if largest <= LARGEST else NAN


@compiled()
def _encode(  # type: ignore[no-untyped-def]
    table,
    vector,
    scales,
    codes,
    rows,
    codes_at,
    seed,
    step,
    rank,
    kind,
    bits,
    most,
    offset,
    bucket,
    rotation,
    period,
    largest,
    nearest,
    takes,
):
    longest = 0
    for s in range(len(table)):
        longest = max(longest, table[s, NUMEL])
    ahead = bucket == 0 and period > 0 and len(rows) == 0  # one scale, found in a pass of its own
    if bucket == 0 and len(rows):
        period = 0
    longest = min(longest, period) if period else longest
    waiting, noise, exact = np.empty(longest, np.uint8), np.empty(longest, np.float32), np.empty(longest, np.float32)
    total, turned = np.empty(longest, np.float32), np.empty(longest, np.float32)
    top, zero, each = np.int32(most), np.int32(offset), 2 if kind == MEANS else 1
    sum_unit = np.float32(1.0 / most) if kind == LEVELS else np.float32(1)
    noise[:] = np.float32(0.5)
    for s in range(len(table)):
        n = table[s, NUMEL]
        noise_key, size, chunk = key(seed, table[s, TENSOR], step, rank), bucket or n, period or n
        if ahead:
            whole = vector[table[s, LO] : table[s, LO] + n]
            find_scales(whole, scales[table[s, SCALE] : table[s, SCALE] + each], kind, n, largest)
        for start in range(0, n, chunk):
            m = min(chunk, n - start)
            target = vector[table[s, LO] + start : table[s, LO] + start + m]
            first = each * (start // size)
            a = target
            if len(rows):
                a = total[:m]
                a[:] = 0
                for r in range(len(rows)):
                    row = rows[r]
                    of, at = row[4 * first : codes_at].view(np.float32), codes_at + start * bits // 8
                    add_chunk(of, row[at:], kind, bits, zero, size, rotation, sum_unit, waiting, turned, a)
            x = a
            if rotation:
                x = turned[:m]
                x[:] = a
                rotate_blocks(x, rotation)
            here = scales[table[s, SCALE] + first : table[s, SCALE] + first + each * -(-m // size)]
            made = codes[table[s, CODE] + start * bits // 8 : table[s, CODE] + (start + m) * bits // 8 + 1]
            if not ahead:
                find_scales(x, here, kind, size, largest)
            if kind == MEANS:
                pack_signs(x, made)
            elif kind == FP8:
                floats(x, here, size, made)
            else:
                if not nearest:
                    uniform(noise_key, start, noise[:m])
                if bits == 8:
                    levels(x, here, size, top, zero, noise, exact, made)
                else:
                    levels(x, here, size, top, zero, noise, exact, waiting)
                    pack(waiting[:m], bits, made)
            if takes:
                there = kind == LEVELS
                add_chunk(here, made, kind, bits, zero, size, rotation, -sum_unit, waiting, turned, a, there)
                if len(rows):
                    for i in range(m):
                        target[i] += a[i]


@compiled()
def _add(scales, codes, kind, bits, _most, offset, bucket, rotation, period, unit, out):  # type: ignore[no-untyped-def]
    n = len(out)
    size, chunk = bucket or n, period or n
    waiting, turned, each = np.empty(chunk, np.uint8), np.empty(chunk, np.float32), 2 if kind == MEANS else 1
    for start in range(0, n, chunk):
        of, at = scales[each * (start // size) :], codes[start * bits // 8 :]
        target = out[start : min(start + chunk, n)]
        add_chunk(of, at, kind, bits, np.int32(offset), size, rotation, unit, waiting, turned, target)


@compiled()
def _add_rows(  # type: ignore[no-untyped-def]
    rows, codes_at, kind, bits, most, offset, bucket, rotation, period, fresh, out
):
    n = len(out)
    size, chunk = bucket or n, period or n
    waiting, turned, each = np.empty(chunk, np.uint8), np.empty(chunk, np.float32), 2 if kind == MEANS else 1
    unit = np.float32(1.0 / most) if kind == LEVELS else np.float32(1)
    for start in range(0, n, chunk):
        target = out[start : min(start + chunk, n)]
        if fresh:
            target[:] = 0
        for r in range(len(rows)):
            of, at = rows[r][4 * each * (start // size) : codes_at].view(np.float32), codes_at + start * bits // 8
            add_chunk(of, rows[r][at:], kind, bits, np.int32(offset), size, rotation, unit, waiting, turned, target)
