"""Small codes packed into bytes and back, or added to an output, compiled, a chunk at a time.

The first element lies in a byte's highest bits, missing codes of the last byte are 0; 8 bits need no packing. Codes of
a chunk wait as one byte each in the first-level cache; reading 2, 4 or 8 of them as one word lets a shift or a
multiplication bring them together, without strided access, which would not vectorise. Source: D-25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.reference.pack import offset_of

if TYPE_CHECKING:
    import torch

    from ssfx.wire.payload import Payload

CHUNK = 1024
"""Elements between numbers and packed bytes; a multiple of 8."""
_SPREAD = np.uint64(0x8040201008040201)
"""Times a byte: eight copies of it, nine bits apart, so that bit 7 of byte k is its k-th bit from the top."""
_ONES = np.uint64(0x0101010101010101)


@compiled()
def _pack_4(pairs, out):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        pair = np.uint16(pairs[j])
        out[j] = np.uint8(np.uint16(pair << np.uint16(4)) | np.uint16(pair >> np.uint16(8)))


@compiled()
def _pack_2(fours, out):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        word = np.uint32(fours[j])
        left = np.uint32(np.uint32(word << np.uint32(6)) | np.uint32(word >> np.uint32(4)))
        right = np.uint32(np.uint32(word >> np.uint32(14)) | np.uint32(word >> np.uint32(24)))
        out[j] = np.uint8(left | right)


@compiled()
def pack(codes, bits, packed):  # type: ignore[no-untyped-def]
    """Write `codes` (uint8) of 2 or 4 bits into `packed`; single bits are packed by `signs`."""
    per_byte = 8 // bits
    whole = len(codes) // per_byte
    body = codes[: whole * per_byte]
    if bits == 4:
        _pack_4(body.view(np.uint16), packed[:whole])
    else:
        _pack_2(body.view(np.uint32), packed[:whole])
    rest = codes[whole * per_byte :]
    if len(rest):
        last = 0
        for j in range(len(rest)):
            last |= int(rest[j]) << (8 - bits * (j + 1))
        packed[whole] = last


@compiled()
def _unpack_4(body, pairs):  # type: ignore[no-untyped-def]
    for j in range(len(body)):
        both = np.uint16(body[j])
        pairs[j] = np.uint16(both >> np.uint16(4)) | np.uint16(np.uint16(both & np.uint16(15)) << np.uint16(8))


@compiled()
def _unpack_2(body, fours):  # type: ignore[no-untyped-def]
    for j in range(len(body)):
        byte = np.uint32(body[j])
        left = np.uint32(np.uint32(byte >> np.uint32(6)) | np.uint32(byte << np.uint32(4)))
        right = np.uint32(np.uint32(byte << np.uint32(14)) | np.uint32(byte << np.uint32(24)))
        fours[j] = np.uint32(left | right) & np.uint32(0x03030303)


@compiled()
def _unpack_1(body, eights):  # type: ignore[no-untyped-def]
    for j in range(len(body)):
        eights[j] = ((np.uint64(body[j]) * _SPREAD) >> np.uint64(7)) & _ONES


@compiled()
def unpack(packed, bits, codes):  # type: ignore[no-untyped-def]
    """Write the codes of 1, 2 or 4 bits in `packed` into `codes` (uint8)."""
    per_byte = 8 // bits
    whole = len(codes) // per_byte
    body, out = packed[:whole], codes[: whole * per_byte]
    if bits == 4:
        _unpack_4(body, out.view(np.uint16))
    elif bits == 2:
        _unpack_2(body, out.view(np.uint32))
    else:
        _unpack_1(body, out.view(np.uint64))
    rest = codes[whole * per_byte :]
    for j in range(len(rest)):
        rest[j] = (int(packed[whole]) >> (8 - bits * (j + 1))) & ((1 << bits) - 1)


def add_signs(payload: Payload, low: torch.Tensor, high: torch.Tensor, block: int, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: `low` or `high` (float32 [G]) of its block."""
    _add_signs(payload.codes.numpy(), low.numpy(), high.numpy(), block or max(1, out.numel()), out.numpy())


def add_levels(payload: Payload, bits: int, steps: torch.Tensor, bucket: int, out: torch.Tensor) -> None:
    """Add to `out` each level times the step (float32 [G]) of its bucket."""
    size = bucket or max(1, out.numel())
    _add_levels(payload.codes.numpy(), bits, offset_of(bits), steps.numpy(), size, out.numpy())


@compiled()
def _add_signs(codes, lows, highs, size, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    n = len(out)
    for g in range(0, n, size):
        end = min(g + size, n)
        low, high = lows[g // size], highs[g // size]
        for start in range(g, end, CHUNK):
            target = out[start : min(start + CHUNK, end)]
            unpack(codes[start // 8 :], 1, waiting[: len(target)])
            for i in range(len(target)):
                target[i] += high if waiting[i] else low


@compiled()
def _add(codes, zero, step, target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] += np.float32(np.int32(np.int32(codes[i]) - zero)) * step


@compiled()
def _add_levels(codes, bits, offset, steps, size, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    signed, zero = codes.view(np.int8), np.int32(offset)
    n = len(out)
    for g in range(0, n, size):
        end, step = min(g + size, n), steps[g // size]
        if bits == 8:
            _add(signed[g:end], zero, step, out[g:end])
            continue
        for start in range(g, end, CHUNK):
            target = out[start : min(start + CHUNK, end)]
            unpack(codes[start * bits // 8 :], bits, waiting[: len(target)])
            _add(waiting, zero, step, target)
