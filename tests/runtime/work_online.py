"""What the pool's ranks run for online profiling, agreement and calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from runtime.models import build, loss_of
from torch import nn

import ssfx
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import ConfigError, RunError
from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.runtime.online import Observer, agree, check_same, parameter_names, registration_profile
from ssfx.runtime.online_costs import calibrate

CPU = torch.device("cpu")


def profile_of(group: Any, rank: int, world: int, records: list[list[dict[str, float]]]) -> Profile:
    """Return the agreed profile of four parameters a, b, c, d with hand-made arrival times per rank and step."""
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(2)) for name in "abcd"})
    params = parameter_names(model)
    observer = Observer(model, list(params), CPU, len(records[rank]))
    observer.records = [dict(record) for record in records[rank]]
    observer.forward_s = [0.5] * len(records[rank])
    assert observer.complete
    observer.close()
    return observer.profile(registration_profile(params), TorchComm(group))


def observed(group: Any, rank: int, world: int) -> tuple[list[dict[str, float]], list[str], int]:
    """Return what an observer recorded in two backward passes, the profile's order, and hooks left after close."""
    model = build("branches")
    params = parameter_names(model)
    observer = Observer(model, list(params), CPU, 2)
    for name, p in params.items():
        p.register_post_accumulate_grad_hook(lambda _, name=name: observer.seen(name))
    for step in range(2):
        assert not observer.complete
        loss_of(model, rank, step).backward()
        observer.end_step()
    observer.close()
    profile = observer.profile(registration_profile(params), TorchComm(group))
    return (
        observer.records,
        [s.name for s in profile.tensors],
        len(model._forward_hooks) + len(model._forward_pre_hooks),
    )


def agreed(group: Any, rank: int, world: int, failure: str) -> str:
    """Return what `agree` gives or raises when rank 0's part fails in the way asked for."""

    def make() -> dict[str, int]:
        assert rank == 0
        if failure:
            raise {"ConfigError": ConfigError, "RunError": RunError, "ValueError": ValueError}[failure]("no plan: ü")
        return {"made by": rank}

    try:
        return str(agree(TorchComm(group), make))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def differing(group: Any, rank: int, world: int, digests: list[str]) -> str:
    try:
        check_same(TorchComm(group), digests[rank], "the plan")
    except ConfigError as error:
        return str(error)
    return ""


def costs(group: Any, rank: int, world: int, compressor: str) -> Costs:
    return calibrate(TorchComm(group), CPU, compressor, 0.05, 5000)


def replanned(group: Any, rank: int, world: int) -> tuple[list[str], list[str], str]:
    """Return the order of tensors before and after the first step of DDP, and the plan's digest."""
    model = build("branches")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    before = [s.name for s in sync.plan.tensors]
    loss_of(model, rank, 0).backward()
    after = [s.name for s in sync.plan.tensors]
    sync.detach()
    return before, after, sync.plan.digest


def advised(group: Any, rank: int, world: int, path: str) -> tuple[str, str, str]:
    """Return what asking too early says, the answer after a step, and the first tensor of the saved profile."""
    model = build("branches")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    try:
        early = str(sync.advise())
    except ConfigError as error:
        early = str(error)
    loss_of(model, rank, 0).backward()
    answer = str(sync.advise("box", cluster_device="cpu", cluster_nodes=2, density=0.02, batch_size=4))
    sync.profile.save(f"{path}/profile{rank}.json")
    sync.detach()
    text = Path(path, f"profile{rank}.json").read_text()
    return early, answer, Profile.from_json(text).tensors[0].name
