"""Accumulate, compare, take out: one loop that has every element in a register once.

Sixteen elements at a time are accumulated as `accumulate` does it, compared with the threshold, and
written without those that reach it, whose positions and bits are appended to two lists. LLVM's vectors and compressing
shuffles do it without a branch per element, on any processor.

The residual memory, which is not read before the next step, is written past the caches: a store into them first reads
what it replaces, which is a fourth of all that moves. The locks by which threads hand each other buffers order such
stores as they do all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ssfx.compressors.kernels.cpu.accumulate import ADDRESS, KIND, START, accumulate_chunk
from ssfx.compressors.kernels.cpu.jit import compiled
from ssfx.compressors.kernels.cpu.vector import INT32, WHOLE, WIDTH, all_equal, append, floats_at, positions_from
from ssfx.compressors.kernels.interface import COPY, READY, RESIDUAL

MAGNITUDE = np.int32(0x7FFFFFFF)
SPARE = WIDTH
"""Entries that the two lists need behind the last one."""

AHEAD = 1024
"""How many elements ahead memory is asked for what a step loads."""

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)


class _Vectors:
    """The vectors of one step of the loop; `load` and `store` are at the step's elements."""

    def __init__(self, builder: Any, places: dict[str, tuple[Any, Any]], weights: tuple[Any, Any]) -> None:
        self.builder = builder
        self._places = places
        self.decay, self.gain = (all_equal(builder, weight) for weight in weights)

    def _at(self, name: str) -> Any:
        pointer, element = self._places[name]
        return self.builder.bitcast(self.builder.gep(pointer, [element]), _FLOATS.as_pointer())

    def load(self, name: str) -> Any:
        # Where elements pass at unpredictable places, the processor forgets what it had begun to load; this stays.
        pointer, element = self._places[name]
        ahead = self.builder.gep(pointer, [self.builder.add(element, element.type(AHEAD))])
        kind = ir.FunctionType(ir.VoidType(), [ahead.type, INT32, INT32, INT32])
        prefetch = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        self.builder.call(prefetch, [ahead, INT32(0), INT32(3), INT32(1)])
        return self.builder.load(self._at(name), align=4)

    def store(self, value: Any, name: str) -> None:
        self.builder.store(value, self._at(name), align=4)

    def store_past_caches(self, value: Any, name: str) -> None:
        stored = self.builder.store(value, self._at(name), align=4 * WIDTH)
        stored.set_metadata("nontemporal", self.builder.module.add_metadata([INT32(1)]))

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b)

    def times(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b)


def _copied(lanes: _Vectors) -> Any:
    return lanes.load("grad")


def _residual(lanes: _Vectors) -> Any:
    return lanes.add(lanes.times(lanes.decay, lanes.load("old")), lanes.times(lanes.gain, lanes.load("grad")))


def _dgc(lanes: _Vectors) -> Any:
    momentum = lanes.add(lanes.times(lanes.decay, lanes.load("old_momentum")), lanes.load("grad"))
    lanes.store(momentum, "new_momentum")
    return lanes.add(lanes.load("old"), momentum)


def _there(lanes: _Vectors) -> Any:
    return lanes.load("new")


def _taking(accumulated: Callable[[_Vectors], Any], past_caches: bool = False) -> Any:
    """Return the intrinsic for one kind of accumulation: a step of the loop, which returns the new length of the lists.

    With `past_caches` the step's elements of `new` must be aligned to their size.

    grad: pointer to the element at position `start`; vectors: new, old, new and old momentum; i: position of the first
    of the step's elements; least: what the bits of a magnitude must reach; clear: whether what is taken becomes 0.
    """

    @intrinsic
    def take(
        typing_context: Any,
        grad: Any,
        start: Any,
        vectors: Any,
        weights: Any,
        i: Any,
        least: Any,
        clear: Any,
        found: Any,
        taken: Any,
        count: Any,
    ) -> Any:
        number = types.int64
        signature = number(grad, number, vectors, weights, number, types.int32, types.boolean, found, taken, number)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            grad, start, vectors, weights, i, least, clear, found, taken, count = args

            def data(array_type: Any, array: Any) -> Any:
                return cgutils.create_struct_proxy(array_type)(context, builder, array).data

            names = ("new", "old", "new_momentum", "old_momentum")
            places = {
                name: (data(signature.args[2][k], builder.extract_value(vectors, k)), i) for k, name in enumerate(names)
            }
            places["grad"] = (grad, builder.sub(i, start))
            found_at, taken_at = data(signature.args[7], found), data(signature.args[8], taken)
            weight_at = data(signature.args[3], weights)
            decay, gain = (builder.load(builder.gep(weight_at, [INT32(k)])) for k in (0, 1))
            lanes = _Vectors(builder, places, (decay, gain))
            values = accumulated(lanes)
            bits = builder.bitcast(values, WHOLE)
            magnitudes = builder.and_(bits, ir.Constant(WHOLE, [0x7FFFFFFF] * WIDTH))
            reached = builder.icmp_signed(">=", magnitudes, all_equal(builder, least))
            leaves = builder.and_(reached, all_equal(builder, clear))
            rest = builder.select(leaves, ir.Constant(_FLOATS, [0.0] * WIDTH), values)
            if past_caches:
                lanes.store_past_caches(rest, "new")
            elif accumulated is not _there:
                lanes.store(rest, "new")

            def lists() -> list[tuple[Any, Any]]:
                if accumulated is _there:
                    lanes.store(rest, "new")
                return [(positions_from(builder, i), found_at), (bits, taken_at)]

            return append(builder, reached, count, lists)

        return signature, generate

    return take


_take_copied, _take_residual, _take_dgc, _take_there = map(_taking, (_copied, _residual, _dgc, _there))
_take_residual_past_caches = _taking(_residual, past_caches=True)


@compiled()
def aligned(i, keys):  # type: ignore[no-untyped-def]
    """Return the last position up to i from which on WIDTH elements of `keys` are aligned to their size."""
    return i - (i + keys.ctypes.data // keys.itemsize) % WIDTH


@compiled()
def take_chunk(piece, lo, hi, vectors, weights, keys, least, clear, found, taken, count):  # type: ignore[no-untyped-def]
    """Bring elements lo .. hi - 1 up to date with the gradient of their piece and take those that reach `least`.

    Their positions and bits are appended to found[:count] and taken[:count], which need room for all elements and SPARE
    more; the new count is returned. With `clear` they are 0 in the new vector afterwards. `keys` are its bits.
    """
    kind, start, grad = piece[KIND], piece[START], floats_at(piece[ADDRESS])
    whole = lo + (hi - lo) // WIDTH * WIDTH
    # One loop each: numba keeps compiled functions by name and line, so a function that makes loops would not do.
    if kind == RESIDUAL and aligned(lo, keys) == lo:
        for i in range(lo, whole, WIDTH):
            count = _take_residual_past_caches(grad, start, vectors, weights, i, least, clear, found, taken, count)
    elif kind == RESIDUAL:
        for i in range(lo, whole, WIDTH):
            count = _take_residual(grad, start, vectors, weights, i, least, clear, found, taken, count)
    elif kind == COPY:
        for i in range(lo, whole, WIDTH):
            count = _take_copied(grad, start, vectors, weights, i, least, clear, found, taken, count)
    elif kind == READY:
        for i in range(lo, whole, WIDTH):
            count = _take_there(grad, start, vectors, weights, i, least, clear, found, taken, count)
    else:
        for i in range(lo, whole, WIDTH):
            count = _take_dgc(grad, start, vectors, weights, i, least, clear, found, taken, count)
    if whole < hi:
        accumulate_chunk(piece, whole, hi, vectors, weights)
        for i in range(whole, hi):
            if (keys[i] & MAGNITUDE) >= least:
                found[count], taken[count] = i, keys[i]
                count += 1
                if clear:
                    keys[i] = 0
    return count
