"""Numbers to codes, packed into bytes and back, or added to an output: compiled loops over one chunk.

Magnitudes compare as int32 keys, sums are float64 in any order: of float32 numbers they are then exact enough to round
to the float32 scale that the plain-torch path finds. Source: D-25.

The first element lies in a byte's highest bits, missing codes of the last byte are 0; 8 bits need no packing. Codes of
a chunk wait as one byte each in the first-level cache; reading 2, 4 or 8 of them as one word lets a shift or a
multiplication bring them together, without strided access, which would not vectorise. Source: D-25.

Sign bits come from sixteen comparisons at once, whose result is two bytes of the wire already: a comparison of vectors
is a vector of bits in LLVM, while numba's own booleans take a byte each, which would have to be gathered again. The
instructions need no compiler on the user's machine and fit any processor it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ssfx.compressors.kernels.cpu.jit import compiled

if TYPE_CHECKING:
    import torch

    from ssfx.wire.payload import Payload


LARGEST = np.int32(0x7F7FFFFF)
"""Bits of the largest finite float32."""
_MAGNITUDE = np.int32(0x7FFFFFFF)
_ANY_ORDER = {"reassoc", "nsz"}  # lets sums vectorise; NaN and Inf stay what they are


@compiled()
def vote_codes(a, codes):  # type: ignore[no-untyped-def]
    """Write 1 + sign(a)."""
    for i in range(len(a)):
        positive, negative = np.int32(a[i] > np.float32(0)), np.int32(a[i] < np.float32(0))
        codes[i] = np.uint8(np.int32(1) + np.int32(positive - negative))


@compiled()
def in_steps(a, per_unit, exact):  # type: ignore[no-untyped-def]
    """Write |a| * per_unit."""
    for i in range(len(a)):
        exact[i] = abs(a[i]) * per_unit


@compiled()
def level_codes(a, exact, noise, top, offset, codes):  # type: ignore[no-untyped-def]
    """Write offset + sign(a) * min(top, exact rounded up or down at random)."""
    most = np.float32(top)
    for i in range(len(a)):
        below = np.floor(exact[i])
        level = min(most, below + np.float32(noise[i] < exact[i] - below))
        codes[i] = np.uint8(np.int32(offset + np.int32(np.copysign(level, a[i]))))


@compiled()
def largest_key(a):  # type: ignore[no-untyped-def]
    """Return the bits of the largest magnitude; NaN counts as the largest, above infinity."""
    keys = a.view(np.int32)
    largest = np.int32(0)
    for i in range(len(keys)):
        largest = max(largest, np.int32(keys[i] & _MAGNITUDE))
    return largest


@compiled(fastmath=_ANY_ORDER)
def sum_of_squares(a):  # type: ignore[no-untyped-def]
    """Return the sum of a^2 in float64."""
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(a[i])
    return total


@compiled(fastmath=_ANY_ORDER)
def sums_by_sign(a):  # type: ignore[no-untyped-def]
    """Return the sums of a over a >= 0 and over the rest (with NaN) in float64, and how many are >= 0."""
    above, below, count = 0.0, 0.0, np.int32(0)
    for i in range(len(a)):
        above += np.float64(a[i]) if a[i] >= np.float32(0) else 0.0  # a difference might be taken of whole sums
        below += 0.0 if a[i] >= np.float32(0) else np.float64(a[i])
        count = np.int32(count + np.int32(a[i] >= np.float32(0)))
    return above, below, count


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


def add_signs(payload: Payload, low: torch.Tensor, high: torch.Tensor, out: torch.Tensor) -> None:
    """Add to `out` what each bit stands for: `low` or `high` (float32 [1])."""
    if out.numel():
        _add_signs(payload.codes.numpy(), np.float32(low.item()), np.float32(high.item()), out.numpy())


@compiled()
def _add_signs(codes, low, high, out):  # type: ignore[no-untyped-def]
    waiting = np.empty(CHUNK, np.uint8)
    for start in range(0, len(out), CHUNK):
        target = out[start : min(start + CHUNK, len(out))]
        unpack(codes[start // 8 :], 1, waiting[: len(target)])
        for i in range(len(target)):
            target[i] += high if waiting[i] else low


@compiled()
def add_bits(codes, low, high, target):  # type: ignore[no-untyped-def]
    """Add `high` where a code is 1 and `low` where it is 0."""
    for i in range(len(target)):
        target[i] += high if codes[i] else low


@compiled()
def add_levels(codes, zero, step, target):  # type: ignore[no-untyped-def]
    """Add a step for each level above the code of level 0."""
    for i in range(len(target)):
        target[i] += np.float32(np.int32(np.int32(codes[i]) - zero)) * step


_ULPS = np.float32(2**23)
"""Added to a number from 0 to 2^22 and subtracted again, it rounds to the nearest integer, to even from the middle."""


@compiled()
def to_floats(a, scale, codes):  # type: ignore[no-untyped-def]
    """Write a / scale as e4m3 numbers, none above the largest but for rounding.

    A number's unit in the last place is 2^(e - 3), of denormal ones 2^-9: in units it is an integer up to 16, which
    added to the exponent's place also carries into it.
    """
    for i in range(len(a)):
        bits = np.float32(a[i] / scale).view(np.int32)
        magnitude = np.int32(bits & _MAGNITUDE)
        exponent = max(np.int32(magnitude >> np.int32(23)), np.int32(121))
        per_unit = np.int32(np.int32(np.int32(257) - exponent) << np.int32(23)).view(np.float32)
        units = np.float32(np.float32(magnitude.view(np.float32) * per_unit + _ULPS) - _ULPS)
        code = np.int32(np.int32(np.int32(exponent - np.int32(121)) << np.int32(3)) + np.int32(units))
        codes[i] = np.uint8(np.int32(code | np.int32(np.int32(bits >> np.int32(24)) & np.int32(128))))


@compiled()
def add_floats(codes, step, target):  # type: ignore[no-untyped-def]
    """Add a step times each e4m3 number."""
    for i in range(len(target)):
        code = np.int32(codes[i])
        exponent = max(np.int32(np.int32(code >> np.int32(3)) & np.int32(15)), np.int32(1))
        units = np.int32(np.int32(code & np.int32(127)) - np.int32(np.int32(exponent - np.int32(1)) << np.int32(3)))
        unit = np.int32(np.int32(exponent + np.int32(117)) << np.int32(23)).view(np.float32)
        number = np.float32(np.float32(units) * unit)
        target[i] += np.float32(-number if code & np.int32(128) else number) * step


WIDTH = 16
_REVERSED_BYTES = [*range(7, -1, -1), *range(15, 7, -1)]  # the first element of a byte is its highest bit


@intrinsic
def _sign_bits(_typing_context: Any, a: Any, start: Any) -> Any:
    """Return the bits (x >= 0) of float32 a[start : start + 16] as two bytes of the wire, little-endian."""
    signature = types.uint16(a, start)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers, start = args
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, numbers).data
        vector = ir.VectorType(ir.FloatType(), WIDTH)
        order = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), _REVERSED_BYTES)
        loaded = builder.load(builder.bitcast(builder.gep(data, [start]), vector.as_pointer()), align=4)
        turned = builder.shuffle_vector(loaded, ir.Constant(vector, ir.Undefined), order)
        bits = builder.fcmp_ordered(">=", turned, ir.Constant(vector, [0.0] * WIDTH))
        return builder.bitcast(bits, ir.IntType(16))

    return signature, generate


@compiled()
def pack_signs(a, packed):  # type: ignore[no-untyped-def]
    """Write a bit per element into `packed`: 1 where a >= 0, so for both zeros, and 0 for NaN; missing bits are 0."""
    whole = len(a) // WIDTH
    for j in range(whole):
        bits = _sign_bits(a, j * WIDTH)
        packed[2 * j] = bits & 255
        packed[2 * j + 1] = bits >> 8
    packed[2 * whole : (len(a) + 7) // 8] = 0
    for i in range(whole * WIDTH, len(a)):
        if a[i] >= 0:
            packed[i // 8] |= 128 >> (i % 8)
