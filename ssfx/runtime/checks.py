"""Refuse models, optimizers and arguments with which an exchange would silently be wrong, on every rank alike.

What ranks must have in common is compared once: the error names the first thing that differs, and on which ranks.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError, RunError, SsfxError, near
from ssfx.core.other_keys import other_key
from ssfx.planning.plan import Plan
from ssfx.schemes import Scheme

Optimizers = tuple[torch.optim.Optimizer, ...]
OWN_EXCHANGE = {
    "DataParallel": "attach to the bare module in one process for each device, as torchrun starts them",
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
    **dict.fromkeys(
        ("clip_norm", "max_grad_norm", "clip"),
        "clip between backward and optimizer.step, as with DDP; scheme=auto may hear of it by clipped=True",
    ),
    **dict.fromkeys(("cluster", "iteration_ms"), "it is a key of ssfx advise; attach measures where it runs"),
    **dict.fromkeys(("device", "device_id"), "the exchange is on the model's device; move the model there before"),
    **dict.fromkeys(
        ("world_size", "backend", "init_method"),
        "ranks are those of torch.distributed.init_process_group, which the script calls before",
    ),
    **dict.fromkeys(("hooks", "overlap", "async_op"), "exchanges overlap backward by themselves; drop it"),
    **dict.fromkeys(("fp16", "bf16", "amp", "precision"), "use torch.autocast in the script; drop it"),
    **dict.fromkeys(("error_feedback", "residual"), 'it is memory="residual", the default, or memory="none"'),
}
"""Arguments that people expect, and what to do."""
_OWN = ("scheme", "compressor", "density", "memory", "scaler", "process_group", "costs", "profile", "exempt")
_KINDS = {
    "compressor": 'text, as "topk" or "dgc(value_dtype=float16)"',
    "memory": 'text, as "residual"',
    "density": "the kept fraction, a number in (0, 1]",
    "scaler": "the torch.amp.GradScaler of the script",
    "costs": "an ssfx Costs, as sync.planner measures, no name of a cluster; leave it out to measure",
    "profile": 'an ssfx Profile, as Profile.from_json(Path("mine.json").read_text())',
    "comm": "that of virtual_ranks",
    "seed": "a whole number",
    "trace": "True or False",
    "broadcast_buffers": "True or False",
}


def check_kinds(given: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise ConfigError for the first argument of `attach` that is of another kind: (value, type) by name."""
    for name, (value, kind) in given.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool)):
            raise ConfigError(f"{name} is {_KINDS[name]}; got {type(value).__name__} {value!r:.60}")


def check_arguments(options: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError for an argument of DistributedDataParallel among options, or a name like one of `attach`."""
    for name in options:
        if name in known:
            continue
        meant = next(iter(get_close_matches(name, [*_OTHERS, *ARGUMENTS], n=1, cutoff=0.86)), "")
        if meant in _OTHERS:
            raise ConfigError(f"attach has no argument {name}; {_OTHERS[meant]}")
        if not other_key(name).startswith(_OWN) and (close := near(name, _OWN)) and len(close) == 1:
            raise ConfigError(f"attach has no argument {name}; did you mean {close[0]}?")
        if meant:
            raise ConfigError(
                f"{name} is an argument of DistributedDataParallel, not of attach; drop it: {ARGUMENTS[meant]}"
            )


def check_module(model: object) -> None:
    """Raise ConfigError unless `model` is a bare module: no DDP, FSDP or sharded parameter in it."""
    if not isinstance(model, torch.nn.Module):
        hint = (
            "model comes first, optimizer second"
            if isinstance(model, torch.optim.Optimizer)
            else "give the module itself, not its parameters or its state"
            if isinstance(model, Mapping | Iterator)
            else "give a torch.nn.ModuleList of them"
            if isinstance(model, Sequence)
            else "give a module that was made of the class"
            if isinstance(model, type)
            else "of a pipeline stage attach its submodule, with the process group of the ranks that hold the same one"
        )
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
    if isinstance(inner, torch.optim.lr_scheduler.LRScheduler):
        raise ConfigError(f"attach needs an optimizer, got its schedule {type(inner).__name__}; give the optimizer")
    while isinstance(getattr(inner, "optimizer", None), torch.optim.Optimizer):
        inner = inner.optimizer
    # A subclass with an __init__ of its own has no hooks: torch's PostLocalSGDOptimizer.
    while not (isinstance(inner, torch.optim.Optimizer) and hasattr(inner, "_optimizer_step_pre_hooks")):
        held = [one for one in getattr(inner, "__dict__", {}).values() if isinstance(one, torch.optim.Optimizer)]
        if len(held) != 1:
            raise ConfigError(
                f"attach needs a torch.optim.Optimizer (or a list of them), got {type(optimizer).__name__}; pass the "
                "optimizer that the training loop steps, or the one inside it that has torch's __init__"
            )
        inner = held[0]
    found: torch.optim.Optimizer = inner
    return found


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


Facts = Mapping[str, str]
"""What it is and its value, in words, in the order in which differences shall be named."""


def check_agreed(comm: Comm, facts: Facts, advice: str) -> None:
    """Raise ConfigError on every rank, with `advice`, unless all ranks give the same facts.

    One number a rank is gathered where they do.
    """
    text = json.dumps(dict(facts)).encode()
    digest = int(hashlib.sha256(text).hexdigest()[:15], 16)
    mine = torch.tensor([digest], dtype=torch.int64, device=comm.device)
    if len(set(comm.all_gather(mine).wait().view(-1).tolist())) > 1:
        raise ConfigError(f"{difference(gather_facts(comm, facts))}; {advice}")


def gather_facts(comm: Comm, facts: Facts) -> list[dict[str, str]]:
    """Return the facts of every rank, by rank."""
    text = torch.frombuffer(bytearray(json.dumps(dict(facts)).encode()), dtype=torch.uint8)
    length = torch.tensor([text.numel()], dtype=torch.int64, device=comm.device)
    lengths = comm.all_gather(length).wait().view(-1).tolist()
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=comm.device)
    padded[: text.numel()] = text
    rows = comm.all_gather(padded).wait().cpu()
    return [json.loads(row[:length].numpy().tobytes()) for row, length in zip(rows, lengths, strict=True)]


def difference(everyone: Sequence[Facts]) -> str:
    """Return the first fact that differs between ranks, with rank 0's value and the others'."""
    names = list(dict.fromkeys(name for facts in everyone for name in facts))
    for name in names:
        values = [facts.get(name, "missing") for facts in everyone]
        if len(set(values)) > 1:
            other = next(value for value in values if value != values[0])
            return f"{name} is {values[0]} on {_ranks(values, values[0])} and {other} on {_ranks(values, other)}"
    return ""


def _ranks(values: Sequence[str], value: str) -> str:
    ranks = [str(rank) for rank, held in enumerate(values) if held == value]
    shown = ", ".join(ranks[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def model_facts(model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, str]:
    """Return what the optimizers are set to, and every parameter and buffer of the model with who holds it."""
    facts = optimizer_facts(optimizers)
    held = {
        id(p): f"held by group {number}" + (f" of optimizer {place}" if place else "")
        for place, optimizer in enumerate(optimizers)
        for number, group in enumerate(optimizer.param_groups)
        for p in group["params"]
    }
    for number, (name, p) in enumerate(model.named_parameters()):
        kind = held.get(id(p), "held by no optimizer") if p.requires_grad else "frozen"
        facts[f"parameter number {number}"] = f"{name.replace('_orig_mod.', '')}, {_kind_of(p)}, {kind}"
    for number, (name, buffer) in enumerate(model.named_buffers()):
        facts[f"buffer number {number}"] = f"{name.replace('_orig_mod.', '')}, {_kind_of(buffer)}"
    return facts


def optimizer_facts(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, str]:
    """Return the kind of every optimizer and the numbers and words that its groups are set to."""
    facts = {}
    for place, optimizer in enumerate(optimizers):
        which = f" of optimizer {place}" if place else ""
        facts[f"kind{which or ' of the optimizer'}"] = type(optimizer).__name__
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key not in ("params", "param_names"):
                    called = "learning rate" if key == "lr" else key
                    facts[f"{called} of group {number}{which}"] = _said(value)
    return facts


def load_facts(state: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """Return what the states that ranks load must have in common: with it, they issue the same exchanges."""
    observed = state["observed"]
    return {
        "step": str(state["step"]),
        "skipped_steps": str(state["skipped_steps"]),
        "scheme": str(state["scheme"]),
        "loss scale": f"{state['scale']:g}",
        "number of observed steps": str(len(observed[0]) if observed else 0),
        "plan": plan.digest,
        "profile": hashlib.sha256(state["profile"].encode()).hexdigest()[:12],
    }


def attach_facts(
    scheme: Scheme,
    given: dict[str, Any],
    memory: str,
    seed: int,
    costs_given: bool,
    exempt: Collection[str],
    scaler: torch.amp.GradScaler | None,
) -> dict[str, str]:
    """Return what an exchange is attached with, besides the model and its optimizers."""
    options = sorted(asdict(scheme.options(given)).items())
    return {
        "scheme": scheme.name,
        **{f"option {key}": repr(value) for key, value in options},
        "memory": memory,
        "seed": str(seed),
        "argument costs": "given" if costs_given else "None",
        "exempt": ", ".join(sorted(exempt)),
        "GradScaler": scaler_fact(scaler),
    }


def scaler_fact(scaler: torch.amp.GradScaler | None) -> str:
    """Return what a GradScaler is set to, in words."""
    if scaler is None:
        return "none"
    return ", ".join(f"{key.strip('_')} {value:g}" for key, value in scaler.state_dict().items())


def _kind_of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _said(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return repr(value.tolist()) if value.numel() == 1 else _kind_of(value)
    return repr(value) if isinstance(value, (bool, int, float, str, tuple, list, type(None))) else type(value).__name__


def agree(comm: Comm, make: Callable[[], Any]) -> Any:
    """Return rank 0's JSON-serialisable result of `make()` on every rank; an error there is raised on every rank."""
    failure: Exception | None = None
    text = ""
    if comm.rank == 0:
        try:
            text = json.dumps({"value": make()})
        except Exception as error:  # any error: the other ranks are waiting for an answer
            failure = error
            kind = "ConfigError" if isinstance(error, ConfigError) else "RunError"
            reason = (
                str(error) if isinstance(error, SsfxError) else f"rank 0 failed with {type(error).__name__}: {error}"
            )
            text = json.dumps({kind: reason})
    payload = torch.tensor(list(text.encode()), dtype=torch.uint8, device=comm.device)
    length = torch.tensor([payload.numel()], dtype=torch.int64, device=comm.device)
    comm.broadcast(length).wait()
    if comm.rank != 0:
        payload = torch.empty(int(length), dtype=torch.uint8, device=comm.device)
    comm.broadcast(payload).wait()
    if failure is not None:
        raise failure
    answer = json.loads(bytes(payload.cpu().tolist()))
    for error_type in (ConfigError, RunError):
        if error_type.__name__ in answer:
            raise error_type(answer[error_type.__name__])
    return answer["value"]


def check_same(comm: Comm, digest: str, what: str) -> None:
    """Raise ConfigError on every rank unless all ranks hold the same hexadecimal `digest`."""
    mine = torch.tensor([int(digest[:15], 16)], dtype=torch.int64, device=comm.device)
    everyone = comm.all_gather(mine).wait().flatten().tolist()
    if len(set(everyone)) > 1:
        odd = next(rank for rank, value in enumerate(everyone) if value != everyone[0])
        raise ConfigError(f"{what} differs between rank 0 and rank {odd}; all ranks must build the same model")
