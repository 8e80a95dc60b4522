"""The two legs of a sharded exchange, what is asked of each, and its plan: a bucket is a group of `fully_shard`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from ssfx.collectives import Reducer, collectives
from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, build
from ssfx.compressors.cast import Cast
from ssfx.compressors.memories import Memory
from ssfx.compressors.quantizer import Quantizer
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.plan import Bucket, Lane, Plan, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.runtime.exempt import exempted
from ssfx.runtime.saved_state import identity
from ssfx.runtime.setup import placeholder_costs
from ssfx.runtime.sharded.torch_fsdp import ShardGroup
from ssfx.schemes import Scheme
from ssfx.schemes.make_plan import make_plan

_WHOLE_GROUP_BYTES = 1 << 62


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
    of_shards: ClassVar[bool] = False

    @property
    def identity(self) -> dict[str, str]:
        """What determines the exchange besides the model, as text."""
        return identity(self.scheme, self.given, self.memory, self.exempt)

    @cached_property
    def _planned(self) -> tuple[Plan, list[int]]:
        known = asdict(self.scheme.options(self.given))
        capped = {"first_bucket_bytes", "bucket_cap_bytes"} & known.keys()
        caps: dict[str, Any] = dict.fromkeys(capped, _WHOLE_GROUP_BYTES)
        tensors: list[TensorSpec] = []
        buckets: list[Bucket] = []
        owner: list[int] = []
        for number in range(len(self.groups) - 1, -1, -1):  # backward reaches the last group first
            group = self.groups[number]
            dtype = str(group.dtype).removeprefix("torch.")
            specs = tuple(TensorSpec(name, shape, dtype) for name, shape in group.shapes.items())
            costs = placeholder_costs(self.comm.world_size)
            whole = make_plan(self.scheme.name, profile_of(specs), costs, {**caps, **self.given})
            part = exempted(whole, self.exempt)
            made = self._buckets(part)
            tensors += part.tensors
            buckets += made
            owner += [number] * len(made)
        order = launch_in_order(tuple(buckets), tuple(tensors))
        return Plan(self.scheme.name, self.comm.world_size, tuple(tensors), tuple(buckets), order), owner

    def _buckets(self, part: Plan) -> Sequence[Bucket]:
        return part.buckets

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
    """The sum over shards: one message of a group to every rank, whatever messages the scheme makes of it."""

    of_shards: ClassVar[bool] = True

    def _buckets(self, part: Plan) -> Sequence[Bucket]:
        lanes = [lane for bucket in part.buckets for lane in bucket.lanes]
        segments = sorted((s for lane in lanes for s in lane.segments), key=lambda s: part.order[s.tensors[0]])
        dense = all(segment.dense for segment in segments)
        bucket = Bucket((Lane("reduce_scatter" if dense else "all_to_all", tuple(segments)),))
        return [bucket] if segments else []


def check_shard_sum(scheme: Scheme, given: dict[str, Any], compressor: str | None, memory: str | None) -> None:
    """Raise ConfigError where a scheme cannot sum over shards, or would keep a whole model without being asked to."""
    tried = make_plan(scheme.name, profile_of((TensorSpec("x", (64, 64)),)), placeholder_costs(2), given)
    if any(isinstance(collectives.build(lane.collective), Reducer) for _, lane in tried.lanes()):
        raise ConfigError(
            f"scheme={scheme.name} adds up selected elements on the way to all ranks, and a shard goes to one rank; "
            'use scheme=per_tensor with compressor="qsgd(bits=8)", or scheme=ddp_fp16'
        )
    if compressor is None:
        return
    built = build(compressor)
    if built.vote or built.rounds > 1 or not (isinstance(built, (Cast, Quantizer)) or _selects(built)):
        raise ConfigError(
            f"compressor={compressor} does not sum over shards: its payload means nothing to a rank that has only its "
            'chunk; use compressor=fp16, bf16, "qsgd(bits=8)" or "qsgd(bits=4,bucket=32,norm=max)"'
        )
    if built.sparse and memory is None:
        raise ConfigError(
            f"compressor={compressor} between shards keeps a residual of the whole model on every rank, which sharding "
            'is to save (8 bytes an element); use compressor="qsgd(bits=4,bucket=32,norm=max)", or '
            'ask for it: memory="residual"'
        )


def _selects(built: Compressor) -> bool:
    return built.sparse and not built.additive and not built.state_shapes(((64, 64),))


def profile_of(tensors: tuple[TensorSpec, ...]) -> Profile:
    """Return a profile of shards without times."""
    origin = Origin("nominal", note="shards in the order in which torch reduces them; no times")
    return Profile("shards", tensors, (0.0,) * len(tensors), 0.0, origin)
