"""Refuse models, optimizers and arguments with which an exchange would silently be wrong."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ssfx.core.errors import ConfigError, near

Optimizers = tuple[torch.optim.Optimizer, ...]
OWN_EXCHANGE = {
    "DistributedDataParallel": "attach to the bare module instead, and do not wrap it",
    "FullyShardedDataParallel": "it shards parameters, which ssfx does not; train the unwrapped module",
}
_ANY_UNUSED = "parameters without a gradient are always allowed"
ARGUMENTS = {
    "find_unused_parameters": _ANY_UNUSED,
    "static_graph": _ANY_UNUSED,
    "device_ids": "the exchange is on the parameters' device",
    "output_device": "the exchange is on the parameters' device",
    "dim": "the batch is split by the script",
    "init_sync": "parameters and buffers are always made equal when attaching",
    "bucket_cap_mb": "scheme=ddp has bucket_cap_bytes, other schemes group gradients themselves",
    "gradient_as_bucket_view": "gradients have memory of their own",
    "device_mesh": "give the ranks as process_group",
    "mixed_precision": "use torch.autocast",
}
"""Arguments of DistributedDataParallel that `attach` does not have, and what holds instead."""
_OTHERS = {
    **dict.fromkeys(
        ("accumulate", "accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"),
        "run all but the last backward under sync.no_sync(), as with DDP",
    ),
    **dict.fromkeys(("clip_norm", "max_grad_norm", "clip"), "clip between backward and optimizer.step, as with DDP"),
    **dict.fromkeys(("cluster", "iteration_ms"), "it is a key of ssfx advise; attach measures where it runs"),
    **dict.fromkeys(("error_feedback", "residual"), 'it is memory="residual", the default, or memory="none"'),
}
"""Arguments that people expect, and what to do."""
_OWN = ("scheme", "compressor", "density", "memory", "scaler", "process_group", "costs", "profile", "exempt")
_KINDS = {
    "compressor": 'text, as "topk" or "dgc(value_dtype=float16)"', "memory": 'text, as "residual"',
    "density": "the kept fraction, a number in (0, 1]", "scaler": "the torch.amp.GradScaler of the script",
    "costs": "an ssfx Costs, as sync.planner measures, no name of a cluster; leave it out to measure",
    "profile": 'an ssfx Profile, as Profile.from_json(Path("mine.json").read_text())',
    "comm": "that of virtual_ranks", "seed": "a whole number",
}  # fmt: skip


def check_kinds(given: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise ConfigError for the first argument of `attach` that is of another kind: (value, type) by name."""
    for name, (value, kind) in given.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"{name} is {_KINDS[name]}; got {type(value).__name__} {value!r:.60}")


def check_arguments(options: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError for an argument of DistributedDataParallel among options, or a name like one of `attach`."""
    for name in options:
        if name in known:
            continue
        if name in _OTHERS:
            raise ConfigError(f"attach has no argument {name}; {_OTHERS[name]}")
        if (close := near(name, _OWN)) and len(close) == 1:
            raise ConfigError(f"attach has no argument {name}; did you mean {close[0]}?")
        if name in ARGUMENTS:
            raise ConfigError(
                f"{name} is an argument of DistributedDataParallel, not of attach; drop it: {ARGUMENTS[name]}"
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


_OF_LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""What srun, Open MPI and other launchers of MPI tell a process; torch itself reads WORLD_SIZE and RANK only."""


def check_group(process_group: Any) -> None:
    """Raise ConfigError if the environment says that there are several ranks, and no process group exists."""
    if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
        raise ConfigError(
            f"process_group is what torch.distributed.new_group returns, got {process_group!r}; leave it out for all"
        )
    if process_group is not None or dist.is_initialized():
        return
    if reason := several_ranks(os.environ):
        raise ConfigError(
            f"{reason}, but no process group exists, so every rank would train for itself; call "
            "torch.distributed.init_process_group before ssfx.attach (to train alone, set WORLD_SIZE=1)"
        )


def several_ranks(environment: Mapping[str, str]) -> str:
    """Return the variable that says that this process is one of several ranks, as text; "" if none does.

    WORLD_SIZE, or RANK where that is missing, counts before what launchers other than torch's set.
    """
    size, rank = _number(environment, "WORLD_SIZE"), _number(environment, "RANK")
    if size is not None:
        return f"WORLD_SIZE={size}" if size > 1 else ""
    if rank is not None:
        return f"RANK={rank}" if rank > 0 else ""
    for name in _OF_LAUNCHERS:
        if (_number(environment, name) or 0) > 1:
            return f"{name}={environment[name]}"
    return ""


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    return int(text) if text.isdecimal() else None
