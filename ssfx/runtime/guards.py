"""What makes an exchange wrong without an error of its own: a second one, other parameters, other models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ssfx.core.errors import ConfigError

OWN_EXCHANGE = {
    "DistributedDataParallel": "attach to the bare module instead, and do not wrap it",
    "FullyShardedDataParallel": "it shards parameters, which ssfx does not; train the unwrapped module",
}

Optimizers = tuple[torch.optim.Optimizer, ...]


def is_sharded(model: object) -> bool:
    """Return whether torch's `fully_shard` has wrapped `model` or a part of it."""
    return isinstance(model, torch.nn.Module) and any(
        kind.__name__ == "FSDPModule" for part in model.modules() for kind in type(part).__mro__
    )


def check_module(model: object) -> None:
    """Raise ConfigError unless `model` is a bare module: no DDP, FSDP or sharded parameter in it."""
    if not isinstance(model, torch.nn.Module):
        hint = (
            "model comes first, optimizer second" if isinstance(model, torch.optim.Optimizer)
            else "give the module itself, not its parameters or its state" if isinstance(model, Mapping | Iterator)
            else "of a pipeline stage attach its submodule, with the process group of the ranks that hold the same one"
        )  # fmt: skip
        raise ConfigError(f"attach needs a torch.nn.Module, got {type(model).__name__}; {hint}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConfigError(
            "the model is TorchScript, which takes no hooks; attach to the module it was made of, or use torch.compile"
        )
    for part in model.modules():
        for kind in type(part).__mro__:
            if kind.__name__ in OWN_EXCHANGE:
                raise ConfigError(f"{kind.__name__} exchanges gradients itself; {OWN_EXCHANGE[kind.__name__]}")
    for role, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in named:
            if reason := _untakable(tensor):
                raise ConfigError(f"{role} {name} {reason}")


def _untakable(tensor: torch.Tensor) -> str:
    """Return why a parameter or buffer cannot be made equal on all ranks, and what to do; "" if it can."""
    if is_lazy(tensor):
        return "has no shape yet (a lazy module); run one batch through the model, then make the optimizer and attach"
    if tensor.is_meta:
        return "is on the meta device and has no values; call model.to_empty(device=...) and fill it, then attach"
    if any(kind.__name__ == "DTensor" for kind in type(tensor.data).__mro__):
        return (
            "is a DTensor, split over ranks; ssfx averages gradients of whole parameters, so "
            "attach before parallelize_module or fully_shard, or without them"
        )
    if tensor.layout is not torch.strided:
        return (
            f"has layout {str(tensor.layout).removeprefix('torch.')}, and ranks are made equal by dense tensors; make "
            "it dense, or keep it in a plain attribute of the module that is no buffer"
        )
    if tensor.is_quantized:
        return f"is quantised ({str(tensor.dtype).removeprefix('torch.')}); attach before torch.ao.quantization.convert"
    wrapped: bool = is_traceable_wrapper_subclass(tensor.data)
    if wrapped:
        return f"is a {type(tensor.data).__name__}, no plain tensor; attach to the model before it is converted"
    if tensor.is_inference():
        return "was made in torch.inference_mode and cannot be written; make the model outside of it"
    return ""


def unwrapped(optimizer: object) -> Optimizers:
    """Return the torch optimizers in `optimizer`: one, several, or what accelerate or Lightning wrapped around one."""
    several = optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,)
    return tuple(_unwrapped(wrapped) for wrapped in several)


def _unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    inner = optimizer
    while isinstance(getattr(inner, "optimizer", None), torch.optim.Optimizer):
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Optimizer):
        raise ConfigError(
            f"attach needs a torch.optim.Optimizer (or a list of them), got {type(optimizer).__name__}; "
            "pass the optimizer that the training loop steps"
        )
    return inner


def check_held(params: Mapping[str, torch.nn.Parameter], optimizers: Optimizers) -> None:
    """Raise ConfigError unless the optimizers hold every trainable parameter of the model."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in params.items() if id(p) not in held]
    if not missing:
        return
    if len(missing) == len(params):
        raise ConfigError("the optimizer holds none of the model's parameters; pass the one that was made from them")
    raise ConfigError(
        f"the optimizer does not hold {_names(missing)}; pass all optimizers as a list, or freeze what is not trained "
        "with requires_grad_(False)"
    )


def refuse_inside_ddp(_module: torch.nn.Module, _inputs: Any) -> None:
    """Forward pre-hook of an attached model: raise ConfigError while a DistributedDataParallel runs it."""
    if torch.compiler.is_compiling():
        return
    if getattr(DistributedDataParallel, "_active_ddp_module", None) is not None:
        raise ConfigError(
            "this model has ssfx attached and runs inside DistributedDataParallel, so gradients would be exchanged "
            "twice; train the bare module, or sync.detach() first (Hugging Face's Trainer: "
            "ssfx.runtime.integrations.hf.SsfxCallback)"
        )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"parameter{'s' if len(names) > 1 else ''} {shown}"
