"""A model of the user's moved to the meta device as it is: what was shared before is shared there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._pytree import tree_leaves, tree_map

_REGISTERED = ("_parameters", "_buffers", "_modules")


def to_meta(model: nn.Module) -> nn.Module:
    """Parameters, buffers and plain tensors of `model` are on the meta device from now on; returns the model.

    A tensor that stands in several places is a single one afterwards too, which `Module.to("meta")` does not keep: it
    would untie the weights of a language model's head.
    """
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # with the original, whose id must not be used again

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = (leaf, _moved(leaf))
        return moved[id(leaf)][1]

    for module in model.modules():
        for named in (module._parameters, module._buffers):
            for name, tensor in named.items():
                named[name] = move(tensor)
        for name, value in list(module.__dict__.items()):
            if name not in _REGISTERED and any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
                module.__dict__[name] = tree_map(move, value)
    return model


def batch_to(batch: Any, device: str) -> Any:
    """Return a batch on another device: tensors, and whatever can move itself, wherever they stand in it."""
    if isinstance(batch, Mapping) and not isinstance(batch, dict) and not hasattr(batch, "to"):
        batch = dict(batch)
    return tree_map(lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, batch)


def _moved(tensor: Tensor) -> Tensor:
    for kind in (UninitializedParameter, UninitializedBuffer):
        if isinstance(tensor, kind):
            build: Any = kind  # the stubs have the arguments of the class above it
            return build(tensor.requires_grad, "meta", tensor.dtype)  # type: ignore[no-any-return]
    there = tensor.detach().to("meta")
    return nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there
