"""Sign bits: sixteen comparisons at once, whose result is two bytes of the wire already.

A comparison of vectors is a vector of bits in LLVM; numba's own booleans take a byte each, which would have to be
gathered again. The instructions need no compiler on the user's machine and fit any processor it has.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ssfx.compressors.kernels.cpu.jit import compiled

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
