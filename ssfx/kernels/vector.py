"""Two operations that numba has no words for: floats at an address, and appending the positions that pass a test.

Both are LLVM instructions, so they need no compiler on the user's machine and fit whatever processor it has.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 16
"""Elements that `append_reached` tests at once."""


@intrinsic
def floats_at(typing_context: Any, address: Any) -> Any:
    """Return a pointer to float32 from an integer address."""
    signature = types.CPointer(types.float32)(types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return signature, generate


@intrinsic
def append_reached(typing_context: Any, keys: Any, start: Any, least: Any, out: Any, count: Any) -> Any:
    """Append to `out[count:]` the positions start .. start + 15 whose key reaches `least`; return the new count.

    `keys` (int32) are the bits of float32 numbers: without the sign bit, which is masked here, they order like
    magnitudes, NaN above all. A compressing store writes what passes without a branch per element; `out` needs room.
    """
    signature = types.int64(keys, types.int64, types.int32, out, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        keys, start, least, out, count = args
        keys_at = cgutils.create_struct_proxy(signature.args[0])(context, builder, keys).data
        out_at = cgutils.create_struct_proxy(signature.args[3])(context, builder, out).data
        int32, int64, bits = ir.IntType(32), ir.IntType(64), ir.IntType(WIDTH)
        vector, flags = ir.VectorType(int32, WIDTH), ir.VectorType(ir.IntType(1), WIDTH)
        undefined = ir.Constant(vector, ir.Undefined)

        def splat(number: Any) -> Any:
            first = builder.insert_element(undefined, number, int32(0))
            return builder.shuffle_vector(first, undefined, ir.Constant(vector, [0] * WIDTH))

        address = builder.bitcast(builder.gep(keys_at, [start]), vector.as_pointer())
        magnitude = builder.and_(builder.load(address, align=4), ir.Constant(vector, [0x7FFFFFFF] * WIDTH))
        reached = builder.icmp_signed(">=", magnitude, splat(least))
        mask = builder.bitcast(reached, bits)
        before = builder.block
        with builder.if_then(builder.icmp_unsigned("!=", mask, bits(0))):
            positions = builder.add(splat(builder.trunc(start, int32)), ir.Constant(vector, list(range(WIDTH))))
            store_type = ir.FunctionType(ir.VoidType(), [vector, int32.as_pointer(), flags])
            store = cgutils.get_or_insert_function(builder.module, store_type, "llvm.masked.compressstore.v16i32")
            builder.call(store, [positions, builder.gep(out_at, [count]), reached])
            popcount = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bits, [bits]), "llvm.ctpop.i16")
            more = builder.add(count, builder.zext(builder.call(popcount, [mask]), int64))
            appended = builder.block
        result = builder.phi(int64)
        result.add_incoming(count, before)
        result.add_incoming(more, appended)
        return result

    return signature, generate
