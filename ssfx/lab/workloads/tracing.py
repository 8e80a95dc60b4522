"""Sees every operator of a forward and a backward pass, and books its FLOPs, bytes and kernels to a parameter.

Regions of autocast are noted where torch would disable them, because no GPU is here.
"""

import contextlib
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

Regions = list[str]
"""The precisions that the code asks for at the moment, the innermost last; "fp32" where autocast is switched off."""


@contextlib.contextmanager
def autocast_regions() -> Iterator[Regions]:
    """Inside the block torch.autocast, for any kind of device, only notes what it asks for."""
    regions: Regions = []
    kind: Any = torch.amp.autocast_mode.autocast
    init_before = kind.__init__

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *rest: Any, **named: Any) -> None:
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
            warnings.simplefilter("ignore")
            init_before(self, device_type, dtype, enabled, *rest, **named)
        self.asked_precision = _asked(device_type, dtype) if enabled else "fp32"

    def enter(self: Any) -> Any:
        regions.append(getattr(self, "asked_precision", None) or _asked(self.device, self.fast_dtype))
        return self

    def leave(_self: Any, *_error: Any) -> None:
        regions.pop()

    with patch.multiple(kind, __init__=init, __enter__=enter, __exit__=leave):
        yield regions


def _asked(device_type: str, dtype: Any) -> str:
    return _NARROW.get(dtype or torch.get_autocast_dtype("cpu" if device_type == "cpu" else "cuda"), "fp32")


_aten = torch.ops.aten
_FREE = {"_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_NARROW = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_LOOKUPS = {"embedding", "gather", "index_select", "index"}


@dataclass
class Work:
    """Kernels, FLOPs by kind and bytes by kind of some operators.

    `still`: those of the bytes that no precision changes: weights, their gradients, what has 16 bits already.
    """

    kernels: int = 0
    conv_flops: int = 0
    matmul_flops: int = 0
    conv_bytes: int = 0
    matmul_bytes: int = 0
    other_bytes: int = 0
    conv_still: int = 0
    matmul_still: int = 0
    other_still: int = 0

    @property
    def kind(self) -> str:
        """What a single operator is: "conv", "matmul" or "other"."""
        return "conv" if self.conv_bytes else "matmul" if self.matmul_bytes else "other"


class Trace(TorchDispatchMode):
    """Books every operator to the pass and the tensor it belongs to."""

    def __init__(self, model: nn.Module, regions: Regions | None = None, *, fused: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fused = fused
        self._regions = regions if regions is not None else []
        self._again = ""  # the precision of the forward operator whose backward runs
        self._named = {_storage(p): n for n, p in model.named_parameters() if p.requires_grad}
        self._tensor = next(iter(self._named.values()), "")
        self._owned = set(self._named) | {_storage(b) for b in model.buffers()}
        self._kept: dict[int, Tensor] = {}
        self._scores: set[int] = set()
        self.in_attention = False
        self._pending: list[tuple[Work, str, set[int]]] = []  # with the precision, and the storages written
        self._backward = False
        self.work: dict[tuple[str, str], Work] = defaultdict(Work)
        self.by_precision: dict[tuple[str, str], dict[str, Work]] = defaultdict(lambda: defaultdict(Work))
        self.order: list[str] = []
        self._entered_bytes = 0
        self._layers: list[tuple[int, int]] = []  # bytes of the input, and of what was kept inside

    def kept_bytes(self, *, scores: bool = False) -> int:
        """Return the bytes that autograd keeps for backward, or those of them that are matrices of attention scores.

        Parameters and buffers, which are there anyway, do not count.
        """
        kept = [self._kept[key] for key in (self._scores if scores else self._kept)]
        return sum(tensor.untyped_storage().nbytes() for tensor in kept)

    def enter(self, _layer: nn.Module, _inputs: Any) -> None:
        """Note that a layer begins which may be computed again in backward."""
        self._entered_bytes = self.kept_bytes()

    def leave(self, _layer: nn.Module, inputs: Any, _out: Any) -> None:
        """Note what the layer kept."""
        self._layers.append((nbytes(inputs[0]), self.kept_bytes() - self._entered_bytes))

    def recompute_bytes(self) -> int:
        """Return what would be kept if layers kept their inputs alone: with all of one of them, and what is outside."""
        inside = [kept for _, kept in self._layers]
        return self.kept_bytes() - sum(inside) + sum(given for given, _ in self._layers) + max(inside, default=0)

    def keep(self, tensor: Tensor) -> tuple[str, Tensor]:
        """Note a tensor that autograd saves, and in which precision; holding it keeps its storage from being reused."""
        key = _storage(tensor)
        if key not in self._owned:
            self._kept.setdefault(key, tensor)
            if self.in_attention and tensor.ndim > 2 and tensor.shape[-2] == tensor.shape[-1]:
                self._scores.add(key)
        return self._region(), tensor

    def take(self, kept: tuple[str, Tensor]) -> Tensor:
        """Return a tensor that was kept; what runs next has the precision of the operator that kept it."""
        self._again, tensor = kept
        return tensor

    def ready(self, name: str, grad: Tensor) -> None:
        """Book everything since the previous gradient to this one, whose place is that of the last time it grew."""
        if name in self.order:
            self.order.remove(name)
        self.order.append(name)
        for work, _, written in self._pending:
            if _storage(grad) in written and grad.dtype not in _NARROW:
                key = f"{work.kind}_still"
                setattr(work, key, getattr(work, key) + nbytes(grad))
        self._settle("backward", name)

    def book(self, work: Work, precision: str = "", written: Iterable[Tensor] = ()) -> None:
        """Add the work of an operator, in the precision of its region unless it has another."""
        now = self._again if self._backward else self._region()
        self._pending.append((work, precision or now, set(map(_storage, written))))

    def _region(self) -> str:
        """Return the precision of the innermost region, "" outside of all."""
        return self._regions[-1] if self._regions else ""

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
        if self.order:
            self._settle("backward", self.order[-1])

    def _settle(self, passed: str, name: str) -> None:
        key = passed, name
        self.work[key] = _sum([self.work[key], *(work for work, _, _ in self._pending)])
        for precision in {precision for _, precision, _ in self._pending}:
            same = [work for work, other, _ in self._pending if other == precision]
            self.by_precision[key][precision] = _sum([self.by_precision[key][precision], *same])
        self._pending = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _aten._local_scalar_dense.default:
            return True  # the meta device has no values; models only ask whether an input is as usual
        args, kwargs = tree_map(self._here, (args, kwargs or {}))
        out = func(*args, **kwargs)
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        outputs = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        name = func._overloadpacket.__name__
        if not func.is_view and name not in _FREE and outputs:
            self.used(inputs)
            work = _work(func, name, inputs, outputs, args, kwargs, out)
            narrow = {_NARROW[t.dtype] for t in [*inputs, *outputs] if t.dtype in _NARROW}
            still = [t for t in [*inputs, *outputs] if narrow or _storage(t) in self._owned]
            if name not in _LOOKUPS:
                setattr(work, f"{work.kind}_still", sum(map(nbytes, still)))
            self.book(work, min(narrow, default=""), outputs)
        return out

    @staticmethod
    def _here(leaf: Any) -> Any:
        """Return a tensor that a model or a loss keeps to itself as one of the meta device."""
        return leaf.to("meta") if isinstance(leaf, Tensor) and not leaf.is_meta else leaf


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
