"""What a compressor of the user's costs where it has no `cost()`: its operators are counted on a sample; no clock."""

from __future__ import annotations

from typing import Any

from ssfx.compressors.base import Compressor, Context, Cost
from ssfx.compressors.blank import blank_batch, run
from ssfx.core.lazy import torch

SIDE = 1024
"""Segments that are counted are SIDE x SIDE matrices."""
DENSITY = 0.01
SORT_BYTES = 100
"""Of a sort of 32-bit keys with 64-bit positions, by element: four passes of 8 bits that read and write both."""
VIEWS = {
    "_local_scalar_dense",
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "lift_fresh",
    "new_empty",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
}
SORTS = {"argsort", "kthvalue", "sort", "topk"}


def counted_cost(compressor: Compressor) -> Cost:
    """Return what a call of `compressor` issues and moves, by the torch operators that it calls on normal numbers.

    Every operator that is not a view is a kernel, which moves its inputs and outputs; products move theirs once.
    Whatever `compressor` raises on the sample is raised; ValueError where its work is hidden in compiled kernels, so
    that not even one reading of the gradient is seen.
    """
    calls, nbytes = _encoded(compressor, 1)
    if nbytes < 4:
        raise ValueError(f"compressor {compressor.name} works outside of torch operators")
    more = _encoded(compressor, 2)[0] - calls
    further = {"segment_calls": min(max(0, more), calls)}
    if compressor.sparse:  # a lane adds all its entries at once
        return Cost(calls, nbytes, **further)
    decode_calls, decode_nbytes = _decoded(compressor)
    return Cost(calls, nbytes, decode_calls, decode_nbytes, **further)


def _encoded(compressor: Compressor, segments: int) -> tuple[int, float]:
    batch = blank_batch(compressor, [[(SIDE, SIDE)]] * segments, DENSITY)
    batch.world_size = 2
    batch.vector.normal_(std=1e-3, generator=torch.Generator().manual_seed(0))
    run(batch, compressor)  # tables that later steps keep are made
    return _counted(lambda: run(batch, compressor), segments * SIDE * SIDE)


def _decoded(compressor: Compressor) -> tuple[int, float]:
    batch = blank_batch(compressor, [[(SIDE, SIDE)]], DENSITY)
    batch.vector.normal_(std=1e-3, generator=torch.Generator().manual_seed(0))
    run(batch, compressor)
    out = torch.zeros(SIDE * SIDE, dtype=torch.float32)
    context = Context(0, 0, 0, 2, DENSITY, 0, ((SIDE, SIDE),), batch.states[0])
    return _counted(lambda: compressor.decompress_add(batch.payload, out, context, scale=0.5), SIDE * SIDE)


def _counted(work: Any, numel: int) -> tuple[int, float]:
    """Return the kernels of `work`, at least one, and the bytes that they move for each of `numel` elements."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    moved: list[int] = []

    def tensors(tree: Any) -> list[Any]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = operator(*args, **(kwargs or {}))
            name = operator.overloadpacket.__name__
            if name in VIEWS:
                return out
            inputs = tensors(args)
            if name in ("copy_", "zero_", "fill_"):
                inputs = inputs[1:]  # what is overwritten is not read
            if name in SORTS:
                moved.append(SORT_BYTES * inputs[0].numel())
            else:
                moved.append(sum(part.numel() * part.element_size() for part in (*inputs, *tensors(out))))
            return out

    with Counter():  # type: ignore[no-untyped-call]
        work()
    return max(1, len(moved)), round(sum(moved) / numel, 1)
