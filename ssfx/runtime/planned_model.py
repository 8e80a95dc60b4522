"""What an attached model sends: weights that all ranks train, and the plan for them, made anew when they change."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.compressors.memories.rates import Rates
from ssfx.planning.costs import Costs, placeholder_costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.runtime.checks import Optimizers, attach_facts, check_agreed, model_facts
from ssfx.runtime.handle import Handle
from ssfx.runtime.lifetime import Peers
from ssfx.runtime.members import Agreed, Members
from ssfx.runtime.online import registration_profile
from ssfx.runtime.planner import Planner
from ssfx.runtime.setup import Buffers, broadcast_model
from ssfx.runtime.store import Store, identity
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import check_memory, make_plan


class PlannedModel(Handle):
    """A model, what is exchanged of it on all ranks, and the plan of that; a TrainingStep exchanges by it."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Optimizers,
        scheme: str,
        given: dict[str, Any],
        memory: Memory | None,
        scaler: torch.amp.GradScaler | None,
        comm: Comm,
        costs: Costs | None,
        profile: Profile | None,
        seed: int,
        exempt: frozenset[str],
        broadcast_buffers: bool,
    ) -> None:
        super().__init__()
        self.comm = comm
        self.scheme = schemes[scheme]
        self.given = given
        self.memory = memory
        self.seed = seed
        self._exempt = exempt
        self.store = Store()
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._model = model
        self._members = Members(model)
        self._params = self._members.exchanged
        self._rates: Rates | None = None
        if memory is not None and memory.follows_rate:
            self._rates = Rates(optimizers, self._params, partial(self.store.get, buffer=memory.buffers[0]))
        self._base = registration_profile(self._params, self._members.dtypes, optimizers)
        probe = make_plan(scheme, self._base, placeholder_costs(max(2, comm.world_size)), given)  # refuse early
        if memory is not None:
            check_memory(probe, memory)
        if comm.world_size > 1:
            self._agree_on_model(costs is not None, optimizers)
            self._peers = Peers(comm)
            comm.look = self._peers.look
        self._planner = self._planner_with(costs, profile)
        self.plan: Plan = self._planner.first_plan()
        self._buffers = Buffers(model, comm) if broadcast_buffers and comm.world_size > 1 else None

    def _agree_on_model(self, has_costs: bool, optimizers: Optimizers) -> None:
        """Give all ranks rank 0's model; ConfigError where ranks were attached to different things."""
        kind = identity(self.scheme, self.given, self.memory)["memory_kind"]
        facts = attach_facts(self.scheme, self.given, kind, self.seed, has_costs, self._exempt, self.scaler)
        facts |= model_facts(self._model, optimizers)
        check_agreed(self.comm, facts, "attach with the same model, optimizer and options on every rank")
        broadcast_model(self._model, self.comm)

    def broadcast_from(self, rank: int, others: Sequence[torch.Tensor] = ()) -> None:
        """Give all ranks the parameters and buffers of `rank`, and `others`; all have as many."""
        broadcast_model(self._model, self.comm, rank, others)

    def _planner_with(self, costs: Costs | None, profile: Profile | None = None) -> Planner:
        return Planner(
            self.comm,
            self._model,
            self.scheme,
            self.given,
            self.memory,
            self._base,
            costs,
            self._install,
            profile,
        )

    @abstractmethod
    def _install(self, plan: Plan, *, for_a_while: bool = False) -> None:
        """Put a plan into use."""

    def _agree(self, optimizers: Optimizers) -> Agreed:
        """All ranks know what all of them train, and have a plan for it."""
        before = dict(self._params)
        agreed = self._members.agree(self.comm)
        if self._rates is not None:
            self._rates.know(self._params)
        planned = {spec.name: (spec.shape, spec.dtype) for spec in self._base.tensors}
        if {name: (tuple(p.shape), agreed.trained[name]) for name, p in self._params.items()} != planned:
            self._plan_anew(before, optimizers)
        if self._buffers is not None:
            self._buffers.look()
        return agreed

    def _plan_anew(self, before: Mapping[str, torch.nn.Parameter], optimizers: Optimizers) -> None:
        shapes = {spec.name: spec.shape for spec in self._base.tensors}
        self._base = registration_profile(self._params, self._members.dtypes, optimizers)
        names = {id(p): name for name, p in before.items()}
        for name, p in self._params.items():
            if name not in before and (old := names.get(id(p))) is not None:
                self.store.rename(old, name)  # the module that holds it was put into another one
        members = self._members.params.items()  # what was kept of a weight of another shape is of no use
        self.store.keep_only({name for name, p in members if shapes.get(name, p.shape) == p.shape})
        costs = self._planner.costs
        self._planner.close()
        self._planner = self._planner_with(costs)
        self._install(self._planner.first_plan())
