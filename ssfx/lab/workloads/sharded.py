"""Runs of sharded models: the model of a case under torch's `fully_shard`, and what a training loop needs of that."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from ssfx.advice.cases import sharding_of
from ssfx.advice.sharded_steps import Asked, Others, plan_sharded, volumes_of
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import block_of
from ssfx.runtime.stats import Tracer
from ssfx.simulator.pricing.message_sizes import lane_load

if TYPE_CHECKING:
    from ssfx.sharded.sync import ShardedSync


def shard(case: Case, model: nn.Module) -> None:
    """Share the model among ranks as the case says: every block is a group, and the root with what is in none.

    Under precision=bf16 weights are gathered in 16 bits. ConfigError for a block that `fully_shard` does not take.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    mesh = _mesh(case.device, case.world_size // case.shards, case.shards)
    low, reduced = torch.bfloat16, torch.bfloat16 if case.reduce_dtype == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=low if case.precision == "bf16" else None, reduce_dtype=reduced)
    blocks = [name for name in dict.fromkeys(block_of(name) for name, _ in model.named_parameters()) if name]
    for name in blocks:
        try:
            fully_shard(
                model.get_submodule(name), mesh=mesh, mp_policy=policy, reshard_after_forward=case.reshard_after_forward
            )
        except ValueError as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"model={case.model} has a block {name} that fully_shard does not take ({said}); use sharding=none"
            ) from None
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if hasattr(model, "training_loss"):  # a loss of its own is a forward pass, too
        register_fsdp_forward_method(model, "training_loss")


@functools.cache
def _mesh(device: str, replicas: int, shards: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    if replicas == 1:
        return init_device_mesh(device, (shards,), mesh_dim_names=("shards",))
    return init_device_mesh(device, (replicas, shards), mesh_dim_names=("replicas", "shards"))


def exchange_options(case: Case) -> dict[str, Any]:
    """Return the arguments of `ssfx.attach` besides the scheme: of weights and sums over shards, and what is exempt."""
    found: dict[str, Any] = {"exempt": case.exempt} if case.exempt else {}
    if case.shard_compressor is not None:
        found["shards"] = {"scheme": "fused_all", "compressor": case.shard_compressor}
    if case.weights is not None:
        found["weights"] = case.weights
    return found


class ShardedExchange:
    """The exchange of a sharded model with the members of `ssfx.runtime.sync.Sync` that the training loop uses.

    Its times are inside forward and backward: torch gathers and sums there. `planned` has, by names in NoExchange, the
    bytes of gathers and sums in a step, and the share of the elements that travel in the sum which `scheme` is about.
    """

    last = None
    profile = None
    costs = None

    def __init__(self, sync: ShardedSync, model: nn.Module, case: Case) -> None:
        sharding = sharding_of(case)
        assert sharding is not None
        tensors = tuple(TensorSpec(name, tuple(p.shape)) for name, p in reversed(list(model.named_parameters())))
        profile = Profile(case.model, tensors, (0.0,) * len(tensors), 0.0, Origin("nominal", note="no times"))
        found = plan_sharded(profile, sharding, Asked(), Asked(), Others(case.weights, case.exempt))
        found = replace(found, shards=sync.shard_plan or found.shards)
        if sharding.kind == "hsdp":
            found = replace(found, replicas=sync.plan)
        moved = volumes_of(found, passes=case.accumulate)
        lanes = [lane for _, lane in sync.plan.lanes()]
        kept = sum(lane_load(sync.plan, lane).kept for lane in lanes) / sum(map(sync.plan.numel, lanes))
        self.planned = {"contributed_bytes": moved.contributed, "sent_bytes": moved.sent, "achieved_density": kept}
        self.tracer = Tracer(False, 0)
        self.plan = sync.plan
        self._sync, self._model = sync, model
        self.stats, self.detach = sync.stats, sync.detach
        self.state_dict, self.load_state_dict = sync.state_dict, sync.load_state_dict

    @property
    def step(self) -> int:
        """How many steps took what was exchanged."""
        return self._sync.step

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes inside sum over shards alone: whole gradients are kept nowhere. The next sums over replicas, too."""
        self._model.set_requires_all_reduce(False)  # type: ignore[operator]
        try:
            yield
        finally:
            self._model.set_requires_all_reduce(True)  # type: ignore[operator]


@contextmanager
def whole(case: Case, model: nn.Module) -> Iterator[None]:
    """Inside the block ranks hold whole weights, so that each may call the model as often as its data asks for."""
    if case.sharding == "none":
        yield
        return
    from torch.distributed.fsdp import FSDPModule

    parts = [part for part in model.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not model and case.reshard_after_forward, recurse=False)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, all of one that is not sharded."""
    found: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found


def shards_in(state: Any) -> Any:
    """Return a state with this rank's part in place of every sharded tensor, as a rank's file holds it."""
    return tree_map(lambda leaf: local(leaf) if isinstance(leaf, torch.Tensor) else leaf, state)


def load_shards(model: nn.Module, optimizer: torch.optim.Optimizer, states: Mapping[str, Any]) -> None:
    """Continue from `shards_in` of both states, under "model" and "optimizer"."""
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            local(tensor).copy_(states["model"][name])
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def like(value: Any, p: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.ndim or value.shape != local(p).shape:
            return value
        return DTensor.from_local(value, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride())

    kept = {
        number: {key: like(value, parameters[number]) for key, value in one.items()}
        for number, one in states["optimizer"]["state"].items()
    }
    optimizer.load_state_dict({**states["optimizer"], "state": kept})
