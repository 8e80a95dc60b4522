"""The legs of a sharded exchange, what is asked of each, and its plan: a bucket is a group of `fully_shard`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.exempt import exempted
from ssfx.planning.plan import Plan, TensorSpec
from ssfx.runtime.online import costs_for
from ssfx.runtime.store import identity
from ssfx.schemes import Scheme, schemes
from ssfx.schemes.sharded_legs import GATHERS, OVER_SHARDS, check_weights, leg_plan
from ssfx.sharded.torch_fsdp import ShardGroup


@dataclass(frozen=True)
class Leg:
    """What is exchanged how, and between whom: shards between replicas, or gradients between the shards of a replica.

    `given` are the scheme's options that were asked for; parameters in `exempt` travel as they are.
    """

    groups: Sequence[ShardGroup]
    scheme: Scheme
    given: dict[str, Any]
    memory: Memory | None
    comm: Comm
    exempt: frozenset[str] = frozenset()
    agreed: tuple[Plan, list[int]] | None = None
    """The plan of a scheme that plans by costs, and the numbers of its buckets' groups."""
    of_shards: ClassVar[bool] = False
    carriers: ClassVar[tuple[str, str] | None] = None

    @property
    def identity(self) -> dict[str, str]:
        """What determines the exchange besides the model, as text."""
        return identity(self.scheme, self.given, self.memory, self.exempt)

    @cached_property
    def _planned(self) -> tuple[Plan, list[int]]:
        return self.agreed or self._plan_by(None)

    def with_costs(self, costs: Costs | None) -> Leg:
        """Return the leg with the plan of the first rank of the mesh, by costs that are measured where none are given.

        All ranks of the mesh call it together.
        """
        if costs is None:
            largest = max(group.numel for group in self.groups)
            costs = costs_for(self.comm, self.comm.device, self.scheme.online(self.given), largest, 0.0)
        plan, _ = self._plan_by(costs)
        for group in (self.comm.group, self.groups[0].shards):  # replicas first, then the shards of the first one
            box = [plan.to_json()]
            dist.broadcast_object_list(box, group=group, group_src=0)
            plan = Plan.from_json(box[0])
        return self.holding(plan)

    def holding(self, plan: Plan) -> Leg:
        """Return the leg with another plan; ConfigError where one of its buckets is not of one group."""
        owner = {name: number for number, group in enumerate(self.groups) for name in group.names}
        found = [{owner.get(name) for lane in bucket.lanes for name in lane.tensors} for bucket in plan.buckets]
        if any(len(numbers) > 1 or None in numbers for numbers in found):
            raise ConfigError("this plan was made for other groups of fully_shard; wrap the same modules")
        return replace(self, agreed=(plan, [number for numbers in found for number in numbers if number is not None]))

    def _plan_by(self, costs: Costs | None) -> tuple[Plan, list[int]]:
        return leg_plan(
            [self._specs(group) for group in self.groups], self.scheme.name, self.given, self.comm.world_size,
            carriers=self.carriers, exempt=lambda plan: exempted(plan, self.exempt),
            costs=costs,
        )  # fmt: skip

    def _specs(self, group: ShardGroup) -> tuple[TensorSpec, ...]:
        """Return the shards of a group, as torch reduces them."""
        return _specs_of(group.shapes, group.dtype)

    @property
    def plan(self) -> Plan:
        """The plan; its buckets hold tensors of one group each.

        A scheme with byte caps sends a group as a whole unless the caps are given: torch reduces it at once.
        """
        return self._planned[0]

    @property
    def group_of_bucket(self) -> list[int]:
        """The number of the group of each bucket."""
        return self._planned[1]


@dataclass(frozen=True)
class ShardSum(Leg):
    """The sum over shards: one message of a group to every rank, however the scheme divides it into messages."""

    of_shards: ClassVar[bool] = True
    carriers: ClassVar[tuple[str, str] | None] = OVER_SHARDS


@dataclass(frozen=True)
class Weights(Leg):
    """The gathers of weights: one message of a group from every rank, of frozen weights, too."""

    carriers: ClassVar[tuple[str, str] | None] = GATHERS

    def _specs(self, group: ShardGroup) -> tuple[TensorSpec, ...]:
        """Return the shards of a group, as torch gathers them."""
        return _specs_of(group.whole_shapes, group.gather_dtype())


def weights_leg(groups: Sequence[ShardGroup], compressor: str, comm: Comm, exempt: frozenset[str]) -> Weights:
    """Return the gathers of the weights of `groups` by a compressor; ConfigError where torch's alone can."""
    check_weights(compressor)
    return Weights(groups, schemes["fused_all"], {"compressor": compressor}, None, comm, exempt)


def _specs_of(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> tuple[TensorSpec, ...]:
    name = str(dtype).removeprefix("torch.")
    return tuple(TensorSpec(tensor, shape, name) for tensor, shape in shapes.items())
