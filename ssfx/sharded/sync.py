"""ShardedSync: the exchange that `attach` puts on a model of `fully_shard`: hooks, bytes, state."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import finalize, ref

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ssfx.collectives import collectives
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan
from ssfx.runtime.checks import Optimizers, check_agreed, optimizer_facts, scaler_fact
from ssfx.runtime.handle import Handle
from ssfx.runtime.hooks import OptimizerHooks
from ssfx.runtime.lifetime import attached_parameters, claim_model, release_model
from ssfx.runtime.message import Room, StepKey
from ssfx.runtime.message_kinds import make_message
from ssfx.runtime.setup import broadcast_model
from ssfx.runtime.store import STATE_FORMAT, Store, plan_of_state
from ssfx.schemes.make_plan import check_memory
from ssfx.schemes.sharded_legs import profile_of
from ssfx.sharded.group_exchange import GroupExchange, WeightGather
from ssfx.sharded.legs import Buffers, Leg, ShardLeg, ShardSum, Weights, sent_shapes
from ssfx.sharded.resharding import Resharded
from ssfx.sharded.torch_fsdp import ShardGroup
from ssfx.simulator.pricing.message_sizes import lane_rounds
from ssfx.simulator.pricing.sharded_step import shard_traffic


class ShardedSync(Handle):
    """The exchange attached to a model of `fully_shard`; see `attach`.

    Public: no_sync, stats, state_dict, load_state_dict, for_checkpoint, detach, plan, shard_plan, weights_plan. Names
    and shapes in plans are those of this rank's shards, padded to the first shard's size. `plan` is that of the leg
    between replicas, or between shards where there are no replicas. `shard_plan` is None where sums over shards are
    torch's, and `weights_plan` where gathers of weights are.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        groups: list[ShardGroup],
        optimizers: Optimizers,
        *,
        replicas: Leg | None,
        shards: ShardSum | None,
        weights: Weights | None,
        scaler: torch.amp.GradScaler | None,
        seed: int,
    ) -> None:
        self.seed = seed
        self.step = 0
        """How many steps of an optimizer took what was exchanged."""
        self.store, self.shard_store = Store(), Store()
        self._model, self._groups, self._replicas, self._shards = model, groups, replicas, shards
        self._weights = weights
        first = replicas or shards
        assert first is not None
        self._first: Leg = first
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.plan: Plan = first.plan
        self.shard_plan: Plan | None = shards.plan if shards is not None else None
        self.weights_plan: Plan | None = weights.plan if weights is not None else None
        self._shapes = {spec.name: spec.shape for spec in self.plan.tensors}
        sums = {f"{key} of sums over shards": value for key, value in (shards.identity if shards else {}).items()}
        sums |= {f"{key} of gathers of weights": value for key, value in (weights.identity if weights else {}).items()}
        for leg in self._legs():
            if leg.memory is not None and leg is replicas:
                check_memory(leg.plan, leg.memory)
            facts = {
                **(replicas.identity if replicas else {}),
                **sums,
                "seed": str(seed),
                "GradScaler": scaler_fact(self._scaler),
                **optimizer_facts(optimizers),
                **{f"shard of {name}": str(shape) for name, shape in self._shapes.items()},
            }
            check_agreed(leg.comm, facts, "attach with the same model, optimizer and options on every rank")
        if replicas is not None:
            local = [shard for group in groups for shard in group.local_shards()]
            broadcast_model(torch.nn.Module(), replicas.comm, 0, [*local, *model.buffers()])
        self._exchanges = [GroupExchange(group) for group in groups]
        self._sent_bytes = [[0, 0] for _ in groups]
        self._install()
        for number, one in enumerate(self._exchanges):
            if replicas is not None:
                one.group.replace_all_reduce(partial(self._all_reduce, number))
            if shards is not None:
                one.group.replace_reduce_scatter(partial(self._reduce_scatter, number))
        self._gathered_bytes: dict[int, int] = {}
        if weights is not None:
            for (bucket, _), lane in weights.plan.lanes():
                number = weights.group_of_bucket[bucket]
                gather = WeightGather(weights.groups[number], lane, weights.plan, weights.comm, seed)
                weights.groups[number].replace_all_gather(partial(self._gather, number, gather))
        # Of all optimizers: a script may make another one later. Torch keeps what listens, so it must not keep this.
        listens = (
            register_optimizer_step_pre_hook(torch.compiler.disable(partial(_steps, ref(self)))),
            register_optimizer_step_post_hook(torch.compiler.disable(partial(_has_stepped, ref(self)))),
        )
        self._stop_listening = finalize(self, _remove, listens)
        claim_model(model, partial(_sharded, ref(model)))
        ids = partial(_ids, ref(model))
        self._optimizer_hooks = OptimizerHooks(optimizers, ids, attached_parameters, _nothing, _nothing)

    def __repr__(self) -> str:
        legs = []
        if self._replicas is not None:
            legs.append(f"{self._replicas.scheme.name} between {self._replicas.comm.world_size} replicas of each shard")
        if self._shards is not None:
            legs.append(f"{self._shards.scheme.name} between {self._shards.comm.world_size} shards")
        if self._weights is not None:
            legs.append(f"weights gathered by {self._weights.given['compressor']}")
        lanes = sum(1 for _ in self.plan.lanes())
        return (
            f"<ssfx.ShardedSync: {' and '.join(legs)}; "
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
        """Return step counts, the plan, and bytes that this rank sent in each group's latest exchange.

        `sent_bytes` are of every collective that ssfx has replaced, and `planned_bytes` what the plans say of them;
        `shard_sent_bytes` and `planned_shard_bytes` are those of the sums over shards, where ssfx has replaced them.
        `weight_sent_bytes` and `planned_weight_bytes` are of one gather of each group's weights, where ssfx gathers.
        `undone_exchanges`: a number was not finite. `kept_bytes`: memory of residuals, with their copy under way.
        """
        replica_bytes, shard_bytes = (sum(sent[leg] for sent in self._sent_bytes) for leg in (0, 1))
        planned = 0
        if self._replicas is not None:
            planned = sum(
                collectives.build(lane.collective).traffic(load).sent_bytes
                for _, lane in self.plan.lanes()
                for load in lane_rounds(self.plan, lane)
            )
        planned_shard = 0
        if self._shards is not None:
            plan = self._shards.plan
            rank = self._shards.comm.rank
            planned_shard = sum(shard_traffic(plan, lane, rank).sent_bytes for _, lane in plan.lanes())
        summary: dict[str, float | int | str] = {
            "steps": self.step,
            "discarded_exchanges": sum(one.discarded for one in self._exchanges),
            "undone_exchanges": sum(one.undone for one in self._exchanges),
            "scheme": self.plan.scheme,
            "plan": self.plan.digest,
            "lanes": sum(1 for _ in self.plan.lanes()),
            "replicas": self._replicas.comm.world_size if self._replicas is not None else 1,
            "sent_bytes": replica_bytes + shard_bytes,
            "planned_bytes": planned + planned_shard,
        }
        if self._shards is not None:
            summary |= {"shard_sent_bytes": shard_bytes, "planned_shard_bytes": planned_shard}
        if self._weights is not None:
            plan, rank = self._weights.plan, self._weights.comm.rank
            planned_weights = sum(shard_traffic(plan, lane, rank).sent_bytes for _, lane in plan.lanes())
            summary |= {
                "weight_sent_bytes": sum(self._gathered_bytes.values()),
                "planned_weight_bytes": planned_weights,
            }
        kept = [(leg, store) for leg, store in self._stores() if leg.memory is not None and leg.memory.stateful]
        if kept:
            memory = [(store, leg.memory.buffers[0]) for leg, store in kept if leg.memory is not None]
            summary["residual_norm"] = sum(store.norm(buffer) ** 2 for store, buffer in memory) ** 0.5
            summary["kept_bytes"] = 2 * sum(store.nbytes() for store, _ in memory)
        return summary

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: memory of its shards by parameter name, the plan, counters; save one file a rank.

        It fits the same mesh only: the same number of shards and of replicas.
        """
        return {
            "format": STATE_FORMAT,
            **self._first.identity,
            "plan": self.plan.to_json(),
            "profile": profile_of(self.plan.tensors).to_json(),
            "step": self.step,
            "skipped_steps": 0,
            "seed": self.seed,
            "scale": self.store.loss_scale,
            "rates": None,
            "memory": {**self.store.state_dict(), **self.shard_store.state_dict()},
            "costs": None,
            "observed": None,
            **self._place(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; call it on every rank, before the same step.

        ConfigError, with nothing loaded, for another rank, mesh, scheme or model.
        """
        mine = {"seed": self.seed, **self._place(), **self._first.identity}
        sent = sent_shapes(self.shard_plan) if self.shard_plan is not None else {}
        memory = next((leg.memory for leg in self._legs() if leg.memory is not None and leg.memory.stateful), None)
        plan = plan_of_state(state, mine, self._shapes, memory, sent)
        if plan != self.plan and self._replicas is not None and self._first.scheme.profiled:
            self._first = self._replicas = self._replicas.holding(plan)
            self.plan = plan
        if plan != self.plan:
            raise ConfigError("this state was saved with other groups of fully_shard; wrap the same modules")
        for store, names in ((self.store, self._shapes.keys()), (self.shard_store, sent.keys())):
            kept = {name: held for name, held in state["memory"].items() if name in names}
            store.load_state_dict(kept, self._first.comm.device)
            store.loss_scale = state["scale"]
        self.step = state["step"]
        self._install()

    def for_checkpoint(self) -> Resharded:
        """Return what `torch.distributed.checkpoint` saves and loads beside the model, on any mesh: the residuals.

        Give it a name in the dictionary that is saved: `save({"model": ..., "ssfx": sync.for_checkpoint()})`.
        """

        def load(step: int) -> None:
            self.step = step
            self._install()

        return Resharded(self._stores(), lambda: self.step, load)

    def detach(self) -> None:
        """Torch's own exchange is back; residuals that were not sent are lost."""
        self._stop_listening()
        self._optimizer_hooks.close()
        for group in self._weights.groups if self._weights is not None else self._groups:
            group.restore()
        release_model(self._model)

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _all_reduce(self, number: int, reduced: torch.Tensor) -> None:
        assert self._replicas is not None
        with torch.no_grad(), self._counted(number, self._replicas):
            self._exchanges[number].all_reduce(reduced)

    def _reduce_scatter(
        self, number: int, output: torch.Tensor, inputs: torch.Tensor, share: float, natively: Callable[[], None]
    ) -> None:
        assert self._shards is not None
        with torch.no_grad(), self._counted(number, self._shards):
            self._exchanges[number].reduce_scatter(output, inputs, share, natively, self.step)

    def _gather(
        self,
        number: int,
        gather: WeightGather,
        output: torch.Tensor,
        inputs: torch.Tensor,
        natively: Callable[[], None],
    ) -> None:
        assert self._weights is not None
        before = self._weights.comm.sent.sent_bytes
        with torch.no_grad():
            gather.gather(output, inputs, natively, self.step)
        self._gathered_bytes[number] = self._weights.comm.sent.sent_bytes - before

    @contextmanager
    def _counted(self, number: int, leg: Leg) -> Iterator[None]:
        """Memories follow the loss scale; the bytes that are sent inside are the group's latest of that leg."""
        scale = self._scaler.get_scale() if self._scaler is not None else 1.0
        for store in (self.store, self.shard_store):
            store.follow(scale)
        before = leg.comm.sent.sent_bytes
        yield
        self._sent_bytes[number][leg is self._shards] = leg.comm.sent.sent_bytes - before

    def _steps(self, optimizer: torch.optim.Optimizer) -> None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        for one in self._exchanges:
            one.look_for_cancelled(held)

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        skipped = getattr(optimizer, "found_inf", None)  # a fused optimizer decides by itself what GradScaler found
        if skipped is not None and bool(skipped):
            return
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        if any(one.open for one in self._exchanges):
            self.step += 1
        with torch.no_grad():
            for one in self._exchanges:
                one.stepped(held)

    def _legs(self) -> list[Leg]:
        return [leg for leg in (self._replicas, self._shards, self._weights) if leg is not None]

    def _stores(self) -> list[tuple[Leg, Store]]:
        pairs = ((self._replicas, self.store), (self._shards, self.shard_store))
        return [(leg, store) for leg, store in pairs if leg is not None]

    def _install(self) -> None:
        device = self._first.comm.device
        room = Room(device)
        key = StepKey(self.seed, {name: i for i, name in enumerate(sorted(self._shapes))})
        lanes: list[list[Any]] = [[] for _ in self._groups]
        if (leg := self._replicas) is not None:
            for (bucket, _), lane in leg.plan.lanes():
                made = make_message(lane, leg.plan, leg.comm, device, self.store, leg.memory, self.step)
                lanes[leg.group_of_bucket[bucket]].append(made)
        sums: dict[int, ShardLeg] = {}
        if (leg := self._shards) is not None:
            for (bucket, _), lane in leg.plan.lanes():
                number = leg.group_of_bucket[bucket]
                group = self._groups[number]
                sums[number] = ShardLeg(
                    group, lane, leg.plan, leg.comm, self.shard_store, leg.memory, self.seed, self.step
                )
            buffers = Buffers(list(sums.values()), device)
            for one in sums.values():
                one.take(buffers)
        for number, exchange in enumerate(self._exchanges):
            exchange.install(lanes[number], sums.get(number), room, key)

    def _place(self) -> dict[str, Any]:
        """Return where this rank is on the mesh, and how shards are summed beside the leg between replicas."""
        shards, comm = self._groups[0].shards, self._first.comm
        return {
            "world_size": comm.world_size,
            "rank": comm.rank,
            "shards": shards.size(),
            "shard": shards.rank(),
            "shard_sums": repr(self._shards.identity) if self._shards is not None else "torch",
            **({"weights": repr(self._weights.identity)} if self._weights is not None else {}),
        }


def _steps(sync: ref[ShardedSync], optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Tell an exchange that an optimizer, of its own parameters or of others, is about to step."""
    there = sync()
    if there is not None:
        there._steps(optimizer)


def _has_stepped(sync: ref[ShardedSync], optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Tell an exchange that an optimizer, of its own parameters or of others, has stepped."""
    there = sync()
    if there is not None:
        there._stepped(optimizer)


def _remove(handles: Iterable[Any]) -> None:
    for handle in handles:
        handle.remove()


def _sharded(model: ref[torch.nn.Module]) -> list[torch.nn.Parameter]:
    """Return the parameters that `fully_shard` has sharded: torch or ssfx sums their gradients."""
    there = model()
    return [p for p in there.parameters() if isinstance(p, DTensor)] if there is not None else []


def _ids(model: ref[torch.nn.Module]) -> set[int]:
    there = model()
    return {id(p) for p in there.parameters()} if there is not None else set()


def _nothing(_: torch.optim.Optimizer) -> None:
    """A sharded exchange takes up any optimizer as it comes."""
