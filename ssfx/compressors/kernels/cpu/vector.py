"""Two operations that numba has no words for: floats at an address, and appending the positions that pass a test.

Both are LLVM instructions, so they need no compiler on the user's machine and fit any processor it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 16
"""Elements that are tested at once, and entries that a list needs behind the last one."""
INT32 = ir.IntType(32)
WHOLE = ir.VectorType(INT32, WIDTH)
_INT64, _BITS = ir.IntType(64), ir.IntType(WIDTH)


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
    magnitudes, NaN above all. `out` needs room, as for `append`.
    """
    signature = types.int64(keys, types.int64, types.int32, out, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        keys, start, least, out, count = args
        keys_at = cgutils.create_struct_proxy(signature.args[0])(context, builder, keys).data
        out_at = cgutils.create_struct_proxy(signature.args[3])(context, builder, out).data
        address = builder.bitcast(builder.gep(keys_at, [start]), WHOLE.as_pointer())
        magnitudes = builder.and_(builder.load(address, align=4), ir.Constant(WHOLE, [0x7FFFFFFF] * WIDTH))
        reached = builder.icmp_signed(">=", magnitudes, all_equal(builder, least))
        return append(builder, reached, count, lambda: [(positions_from(builder, start), out_at)])

    return signature, generate


def all_equal(builder: Any, number: Any) -> Any:
    """Return a vector of WIDTH times the same number."""
    nothing = ir.Constant(ir.VectorType(number.type, WIDTH), ir.Undefined)
    first = builder.insert_element(nothing, number, INT32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(WHOLE, [0] * WIDTH))


def positions_from(builder: Any, start: Any) -> Any:
    """Return the vector start, start + 1, ... as int32."""
    return builder.add(all_equal(builder, builder.trunc(start, INT32)), ir.Constant(WHOLE, list(range(WIDTH))))


def append(builder: Any, passes: Any, count: Any, lists: Callable[[], Sequence[tuple[Any, Any]]]) -> Any:
    """Append the elements that pass to lists from entry `count` on; return the new count.

    `lists` gives, where any passes, vectors of int32 and pointers to what they are appended to, which needs room for
    WIDTH entries: a shuffle packs what passes, and all of the vector is stored, because there are processors that store
    only what passes element by element.
    """
    mask, before = builder.bitcast(passes, _BITS), builder.block
    with builder.if_then(builder.icmp_unsigned("!=", mask, _BITS(0))):
        kind = ir.FunctionType(WHOLE, [WHOLE, ir.VectorType(ir.IntType(1), WIDTH), WHOLE])
        name = f"llvm.experimental.vector.compress.v{WIDTH}i32"
        pack = cgutils.get_or_insert_function(builder.module, kind, name)
        for vector, into in lists():
            packed = builder.call(pack, [vector, passes, ir.Constant(WHOLE, ir.Undefined)])
            builder.store(packed, builder.bitcast(builder.gep(into, [count]), WHOLE.as_pointer()), align=4)
        ones = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_BITS, [_BITS]), f"llvm.ctpop.i{WIDTH}")
        more = builder.add(count, builder.zext(builder.call(ones, [mask]), _INT64))
        appended = builder.block
    result = builder.phi(_INT64)
    result.add_incoming(count, before)
    result.add_incoming(more, appended)
    return result
