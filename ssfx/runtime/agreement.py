"""What ranks must have in common, compared once: the error names the first thing that differs, and on which ranks."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan
from ssfx.schemes import Scheme

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
    scheme: Scheme, given: dict[str, Any], memory: str, seed: int, costs_given: bool, exempt: Collection[str],
    scaler: torch.amp.GradScaler | None,
) -> dict[str, str]:  # fmt: skip
    """Return what an exchange is attached with, besides the model and its optimizers."""
    options = sorted(asdict(scheme.options(given)).items())
    return {
        "scheme": scheme.name, **{f"option {key}": repr(value) for key, value in options}, "memory": memory,
        "seed": str(seed), "argument costs": "given" if costs_given else "None", "exempt": ", ".join(sorted(exempt)),
        "GradScaler": scaler_fact(scaler),
    }  # fmt: skip


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
