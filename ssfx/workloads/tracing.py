"""Sees every operator of a forward and a backward pass, and books its FLOPs, bytes and kernels to a parameter."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten
_FREE = {"_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_LOOKUPS = {"embedding", "gather", "index_select", "index"}


@dataclass
class Work:
    """Kernels, FLOPs by kind and bytes by kind of some operators."""

    kernels: int = 0
    conv_flops: int = 0
    matmul_flops: int = 0
    conv_bytes: int = 0
    matmul_bytes: int = 0
    other_bytes: int = 0


class Trace(TorchDispatchMode):
    """Books every operator to the pass and the tensor it belongs to."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._named = {_storage(p): n for n, p in model.named_parameters() if p.requires_grad}
        self._tensor = next(iter(self._named.values()))
        self._owned = set(self._named) | {_storage(b) for b in model.buffers()}
        self._kept: dict[int, Tensor] = {}
        self._scores: set[int] = set()
        self.in_attention = False
        self._pending: list[Work] = []
        self._backward = False
        self.work: dict[tuple[str, str], Work] = defaultdict(Work)
        self.order: list[str] = []

    def kept_bytes(self, *, scores: bool = False) -> int:
        """Return the bytes that autograd keeps for backward, or those of them that are matrices of attention scores.

        Parameters and buffers, which are there anyway, do not count.
        """
        kept = [self._kept[key] for key in (self._scores if scores else self._kept)]
        return sum(tensor.untyped_storage().nbytes() for tensor in kept)

    def keep(self, tensor: Tensor) -> Tensor:
        """Note a tensor that autograd saves; holding it keeps its storage from being used again."""
        key = _storage(tensor)
        if key not in self._owned:
            self._kept.setdefault(key, tensor)
            if self.in_attention and tensor.ndim > 2 and tensor.shape[-2] == tensor.shape[-1]:
                self._scores.add(key)
        return tensor

    def ready(self, name: str) -> None:
        """Book everything since the previous gradient to this one."""
        self.order.append(name)
        self._settle("backward", name)

    def book(self, work: Work) -> None:
        """Add the work of an operator."""
        self._pending.append(work)

    def used(self, tensors: Iterable[Tensor]) -> None:
        """Close the account of the parameter in use, if the forward pass turns to another one in `tensors`."""
        for tensor in tensors:
            name = self._named.get(_storage(tensor))
            if name is not None and name != self._tensor and not self._backward:
                self._settle("forward", self._tensor)
                self._tensor = name

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """The block is the backward pass; what comes after the last gradient belongs to it."""
        self._settle("forward", self._tensor)
        self._backward = True
        yield
        self._settle("backward", self.order[-1])

    def _settle(self, passed: str, name: str) -> None:
        self.work[passed, name] = _sum([self.work[passed, name], *self._pending])
        self._pending = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _aten._local_scalar_dense.default:
            return True  # the meta device has no values; models only ask whether an input is as usual
        out = func(*args, **(kwargs or {}))
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        outputs = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        name = func._overloadpacket.__name__
        if not func.is_view and name not in _FREE and outputs:
            self.used(inputs)
            self.book(_work(func, name, inputs, outputs, args, kwargs or {}, out))
        return out


def _work(func: Any, name: str, inputs: list[Tensor], outputs: list[Tensor], args: Any, kwargs: Any, out: Any) -> Work:
    """Return one kernel that moves each operand once; the backward of a convolution is one for each gradient."""
    moved = sum(map(nbytes, outputs)) * 2 if name in _LOOKUPS else sum(map(nbytes, [*inputs, *outputs]))
    packet = func._overloadpacket
    if packet not in flop_registry:
        return Work(kernels=1, other_bytes=moved)
    flops = flop_registry[packet](*args, **kwargs, out_val=out)
    if name.startswith("convolution"):
        return Work(kernels=len(outputs), conv_flops=flops, conv_bytes=moved)
    return Work(kernels=1, matmul_flops=flops, matmul_bytes=moved)


def nbytes(tensor: Tensor) -> int:
    """Return the bytes behind a tensor; an expanded dimension is there once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in sizes if stride) * tensor.element_size()


def _sum(parts: list[Work]) -> Work:
    return Work(*(sum(getattr(part, field.name) for part in parts) for field in fields(Work)))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
