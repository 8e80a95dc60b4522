"""ShardedSync: the exchange that `attach` puts on a model of `fully_shard`: hooks, bytes, state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any
from weakref import finalize, ref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ssfx.collectives import collectives
from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.memories import Memory
from ssfx.planning.plan import Bucket, Plan, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.pricing.message_sizes import lane_rounds
from ssfx.runtime.agreement import check_agreed, optimizer_facts, scaler_fact
from ssfx.runtime.exchange import make_lane
from ssfx.runtime.guards import Optimizers
from ssfx.runtime.lane import Room, StepKey
from ssfx.runtime.saved_state import STATE_FORMAT, identity, plan_of_state
from ssfx.runtime.setup import broadcast_model, claim_model, placeholder_costs, release_model
from ssfx.runtime.store import Store
from ssfx.schemes import Scheme
from ssfx.schemes.make_plan import check_memory, make_plan
from ssfx.sharded.replica_leg import ReplicaLeg
from ssfx.sharded.torch_fsdp import ShardGroup

_WHOLE_GROUP_BYTES = 1 << 62


class ShardedSync:
    """The exchange attached to a model of `fully_shard` on a mesh of two dimensions; see `attach`.

    Public: no_sync, stats, state_dict, load_state_dict, detach, plan. Names and shapes are those of this rank's shards,
    padded to the first shard's size.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        groups: list[ShardGroup],
        optimizers: Optimizers,
        *,
        scheme: Scheme,
        given: dict[str, Any],
        memory: Memory | None,
        scaler: torch.amp.GradScaler | None,
        comm: Comm,
        seed: int,
    ) -> None:
        self.scheme, self.given, self.memory, self.comm, self.seed = scheme, given, memory, comm, seed
        self.step = 0
        """How many steps of an optimizer took what was exchanged."""
        self.store = Store()
        self._model, self._groups = model, groups
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.plan, self._group_of_bucket = _plan_of(groups, scheme, given, comm.world_size)
        if memory is not None:
            check_memory(self.plan, memory)
        self._shapes = {spec.name: spec.shape for spec in self.plan.tensors}
        facts = {
            **identity(scheme, given, memory), "seed": str(seed),
            "GradScaler": scaler_fact(self._scaler), **optimizer_facts(optimizers),
            **{f"shard of {name}": str(shape) for name, shape in self._shapes.items()},
        }  # fmt: skip
        check_agreed(comm, facts, "attach with the same model, optimizer and options on every rank")
        local = [shard for group in groups for shard in group.local_shards()]
        broadcast_model(torch.nn.Module(), comm, 0, [*local, *model.buffers()])
        self._legs = [ReplicaLeg(group) for group in groups]
        self._sent_bytes = [0] * len(groups)
        self._install()
        for number, leg in enumerate(self._legs):
            leg.group.replace_all_reduce(partial(self._exchange, number))
        # Of all optimizers: a script may make another one later. Torch keeps what listens, so it must not keep this.
        listens = register_optimizer_step_post_hook(partial(_has_stepped, ref(self)))
        self._stop_listening = finalize(self, listens.remove)
        claim_model(model)

    def __repr__(self) -> str:
        lanes = sum(1 for _ in self.plan.lanes())
        return (
            f"<ssfx.ShardedSync: {self.scheme.name} between {self.comm.world_size} replicas of each shard; "
            f"{len(self._groups)} groups, {len(self.plan.tensors)} tensors, plan {self.plan.digest} with {lanes} "
            f"messages, step {self.step}>"
        )

    # ---- the public handle ------------------------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside reduce nothing; the next one outside reduces and exchanges the sum."""
        self._model.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            self._model.set_requires_gradient_sync(True)  # type: ignore[operator]

    def stats(self) -> dict[str, float | int | str]:
        """Return step counts, the plan, and bytes that this rank sent to replicas in each group's latest exchange.

        `planned_bytes` are those that the plan and its collectives say. `undone_exchanges`: a number was not finite.
        """
        summary: dict[str, float | int | str] = {
            "steps": self.step,
            "discarded_exchanges": sum(leg.discarded for leg in self._legs),
            "undone_exchanges": sum(leg.undone for leg in self._legs),
            "scheme": self.plan.scheme,
            "plan": self.plan.digest,
            "lanes": sum(1 for _ in self.plan.lanes()),
            "replicas": self.comm.world_size,
            "sent_bytes": sum(self._sent_bytes),
            "planned_bytes": sum(
                collectives.build(lane.collective).traffic(load).sent_bytes
                for _, lane in self.plan.lanes()
                for load in lane_rounds(self.plan, lane)
            ),
        }
        if self.memory is not None and self.memory.stateful:
            summary["residual_norm"] = self.store.norm(self.memory.buffers[0])
        return summary

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: memory of its shards by parameter name, the plan, counters; save one file a rank.

        It fits the same mesh only: the same number of shards and of replicas.
        """
        return {
            "format": STATE_FORMAT,
            **identity(self.scheme, self.given, self.memory),
            "plan": self.plan.to_json(),
            "profile": _profile(self.plan.tensors).to_json(),
            "step": self.step,
            "skipped_steps": 0,
            "seed": self.seed,
            "scale": self.store.loss_scale,
            "rates": None,
            "memory": self.store.state_dict(),
            "costs": None,
            "observed": None,
            **self._place(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; call it on every rank, before the same step.

        ConfigError, with nothing loaded, for another rank, mesh, scheme or model.
        """
        mine = {"seed": self.seed, **self._place(), **identity(self.scheme, self.given, self.memory)}
        if plan_of_state(state, mine, self._shapes, self.memory) != self.plan:
            raise ConfigError("this state was saved with other groups of fully_shard; wrap the same modules")
        self.store.load_state_dict(state["memory"], self.comm.device)
        self.step, self.store.loss_scale = state["step"], state["scale"]
        self._install()

    def detach(self) -> None:
        """Torch's own exchange is back; what was kept back and not sent is lost."""
        self._stop_listening()
        for leg in self._legs:
            leg.group.restore()
        release_model(self._model)

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _exchange(self, number: int, reduced: torch.Tensor) -> None:
        with torch.no_grad():
            self.store.follow(self._scaler.get_scale() if self._scaler is not None else 1.0)
            before = self.comm.sent.sent_bytes
            self._legs[number].exchange(reduced)
            self._sent_bytes[number] = self.comm.sent.sent_bytes - before

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        skipped = getattr(optimizer, "found_inf", None)  # a fused optimizer decides by itself what GradScaler found
        if skipped is not None and bool(skipped):
            return
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        if any(leg.open for leg in self._legs):
            self.step += 1
        with torch.no_grad():
            for leg in self._legs:
                leg.stepped(held)

    def _install(self) -> None:
        room = Room(self.comm.device)
        key = StepKey(self.seed, {name: i for i, name in enumerate(sorted(self._shapes))})
        lanes: list[list[Any]] = [[] for _ in self._groups]
        for (bucket, _), lane in self.plan.lanes():
            made = make_lane(lane, self.plan, self.comm, self.comm.device, self.store, self.memory, self.step)
            lanes[self._group_of_bucket[bucket]].append(made)
        for leg, mine in zip(self._legs, lanes, strict=True):
            leg.install(mine, room, key)

    def _place(self) -> dict[str, int]:
        """Return where this rank is on the mesh."""
        shards = self._groups[0].shards
        return {
            "world_size": self.comm.world_size, "rank": self.comm.rank, "shards": shards.size(), "shard": shards.rank(),
        }  # fmt: skip


def _has_stepped(sync: ref[ShardedSync], optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Tell an exchange that an optimizer, of its own parameters or of others, has stepped."""
    there = sync()
    if there is not None:
        there._stepped(optimizer)


def _profile(tensors: tuple[TensorSpec, ...]) -> Profile:
    origin = Origin("nominal", note="shards in the order in which torch reduces them; no times")
    return Profile("shards", tensors, (0.0,) * len(tensors), 0.0, origin)


def _plan_of(groups: list[ShardGroup], scheme: Scheme, given: dict[str, Any], replicas: int) -> tuple[Plan, list[int]]:
    """Return one plan whose buckets hold tensors of one group each, and the number of the group of each bucket.

    A scheme with byte caps sends a group as a whole unless the caps are given: torch reduces it at once.
    """
    known = asdict(scheme.options(given))
    capped = {"first_bucket_bytes", "bucket_cap_bytes"} & known.keys()
    caps: dict[str, Any] = dict.fromkeys(capped, _WHOLE_GROUP_BYTES)
    tensors: list[TensorSpec] = []
    buckets: list[Bucket] = []
    owner: list[int] = []
    for number in range(len(groups) - 1, -1, -1):  # backward reaches the last group first
        group = groups[number]
        dtype = str(group.dtype).removeprefix("torch.")
        specs = tuple(TensorSpec(name, shape, dtype) for name, shape in group.shapes.items())
        part = make_plan(scheme.name, _profile(specs), placeholder_costs(replicas), {**caps, **given})
        tensors += part.tensors
        buckets += part.buckets
        owner += [number] * len(part.buckets)
    order = launch_in_order(tuple(buckets), tuple(tensors))
    return Plan(scheme.name, replicas, tuple(tensors), tuple(buckets), order), owner
