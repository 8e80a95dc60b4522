"""Sync: the exchange that `attach` puts on a model: hooks, steps, re-planning, state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.core.old_files import up_to_date
from ssfx.memories import Memory, memories
from ssfx.memories.rates import Rates
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.runtime.backward import BackwardPass, nested
from ssfx.runtime.exchange import Exchange, Slot
from ssfx.runtime.guards import (
    STATE_FORMAT,
    Optimizers,
    ParameterWatch,
    check_buffer_shapes,
    check_state,
    plan_in,
    refuse_inside_ddp,
)
from ssfx.runtime.online import Observer, agree, check_same, parameter_names, registration_profile
from ssfx.runtime.online_costs import costs_for
from ssfx.runtime.plan_watch import PlanWatch
from ssfx.runtime.setup import (
    broadcast_model,
    claim_model,
    placeholder_costs,
    release_model,
    warm_up,
)
from ssfx.runtime.stats import StepStats
from ssfx.runtime.store import Store
from ssfx.runtime.trace import Tracer
from ssfx.runtime.tuner import Tuner
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import check_memory, make_plan

if TYPE_CHECKING:
    from ssfx import Advice


class Sync:
    """The exchange attached to a model; see `attach`. Public: no_sync, synchronize, stats, state_dict, detach, plan."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Optimizers,
        *,
        scheme: str,
        given: dict[str, Any],
        memory: Memory | None,
        scaler: torch.amp.GradScaler | None,
        comm: Comm,
        costs: Costs | None,
        seed: int,
        trace: bool,
    ) -> None:
        self.comm = comm
        self.scheme = schemes[scheme]
        self.given = given
        self.memory = memory
        self.costs = costs
        self.seed = seed
        self.step = 0
        self.skipped_steps = 0
        self.last: StepStats | None = None
        self.tracer = Tracer(trace, comm.rank)
        self.store = Store()
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._model = model
        self._params = parameter_names(model)
        self._rates: Rates | None = None
        if memory is not None and memory.follows_rate:
            self._rates = Rates(optimizers, self._params, partial(self.store.get, buffer=memory.buffers[0]))
        self._frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
        self._base = registration_profile(self._params)
        self.profile: Profile = self._base
        self._backward = BackwardPass()
        self._enabled = True
        self._open = False
        self._exchanged = False
        self._stepped: set[int] = set()
        """Optimizers that have stepped since the last exchange, by id."""
        self._handles: list[Any] = []
        self._observer: Observer | None = None
        self._tuner: Tuner | None = None
        self._costs_given = costs is not None
        self._plan_watch: PlanWatch | None = None
        probe = make_plan(scheme, self._base, placeholder_costs(max(2, comm.world_size)), given)  # refuse early
        if memory is not None:
            check_memory(probe, memory)
        self.plan: Plan = self._first_plan()
        if comm.world_size == 1:
            claim_model(model)
            return
        base = hashlib.sha256(repr(self._base.tensors).encode()).hexdigest()
        check_same(comm, base, "the list of trainable parameters")
        check_same(comm, self._identity_digest(costs is not None), "the scheme, its options, the memory or the seed")
        broadcast_model(model, comm)
        self._exchange = Exchange(comm, self._params, memory, self.store, self.tracer)
        chosen: Any = self.scheme.options(given)
        if chosen.compressor is not None and memory is not None:
            warm_up(build(chosen.compressor), memory, comm.device, comm.world_size)
        self._observe()
        if hasattr(chosen, "replan_after"):
            self._plan_watch = PlanWatch(comm, model, chosen, memory.buffers[0] if memory else "")
        self._install(self.plan)
        slots = self._exchange.slots.values()
        self._handles = [s.param.register_post_accumulate_grad_hook(partial(self._hook, s)) for s in slots]
        for one in optimizers:
            self._handles.append(one.register_step_pre_hook(self._before_optimizer))
            self._handles.append(one.register_step_post_hook(self._after_optimizer))
        self._handles.append(model.register_forward_pre_hook(refuse_inside_ddp))
        self._watch = ParameterWatch(model, lambda: [*self._params.values(), *self._frozen.values()])
        claim_model(model)

    def __repr__(self) -> str:
        options: Any = self.scheme.options(self.given)
        compressor = f", {options.compressor} at density {options.density:g}" if options.compressor else ""
        lanes = sum(1 for _ in self.plan.lanes())
        state = "profiling" if self._observer is not None else f"plan {self.plan.digest} with {lanes} messages"
        return (
            f"<ssfx.Sync: {self.scheme.name}{compressor} on {self.comm.world_size} ranks; "
            f"{len(self._params)} tensors, {state}, step {self.step}>"
        )

    # ---- the public handle ------------------------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate locally; the next one outside exchanges the sum."""
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before

    def synchronize(self) -> None:
        """Exchange what is in `.grad` now; needed only if no backward pass outside `no_sync` did it."""
        if self.comm.world_size == 1:
            return
        self._begin()
        self._finish()

    def stats(self) -> dict[str, float | int | str | None]:
        """Return what the exchange did so far: step counts, the plan, the latest step's bytes and densities."""
        last = self.last
        summary: dict[str, float | int | str | None] = {
            "steps": self.step,
            "skipped_steps": self.skipped_steps,
            "scheme": self.plan.scheme,
            "plan": self.plan.digest,
            "lanes": sum(1 for _ in self.plan.lanes()),
        }
        if self.memory is not None and self.memory.stateful:
            summary.update(self._plan_watch.summary() if self._plan_watch else {})
            summary["residual_norm"] = self.store.norm(self.memory.buffers[0])
            summary["threshold"] = self.store.threshold()
        if last is not None:
            summary.update(last.summary())
        return summary

    def advise(self, cluster: str = "local", **options: Any) -> Advice:
        """Return which scheme is best for this model on `cluster`, by what the first steps took here; see `advise_on`.

        `print` it for the answer in words. `sync.profile.save(path)` keeps what it rests on, for `ssfx advise
        profile=PATH`. ConfigError before any gradient was observed, and where the cluster has other devices.
        """
        if self.profile.origin.kind != "measured":
            raise ConfigError("no gradients were observed yet: train some steps, on two ranks or more, then ask")
        import ssfx  # the front door: advice stands above the runtime

        return ssfx.advise_on(self.profile, cluster, **options)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: memory by parameter name, the plan in use, counters; save one file per rank."""
        observer = self._observer
        return {
            "format": STATE_FORMAT,
            "world_size": self.comm.world_size,
            "rank": self.comm.rank,
            **self._identity(),
            "plan": self.plan.to_json(),
            "profile": self.profile.to_json(),
            "step": self.step,
            "skipped_steps": self.skipped_steps,
            "seed": self.seed,
            "scale": self.store.loss_scale,
            "rates": self._rates.state_dict() if self._rates else None,
            "memory": self.store.state_dict(),
            "costs": self.costs.to_json() if self.costs else None,
            "probe_times_s": list(self._tuner.probe_times_s) if self._tuner else None,
            "plan_watch": self._plan_watch.state_dict() if self._plan_watch else None,
            "observed": (list(observer.records), list(observer.forward_s)) if observer else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; ConfigError for another rank, world size, scheme or model."""
        mine = {"world_size": self.comm.world_size, "rank": self.comm.rank, "seed": self.seed, **self._identity()}
        shapes = {spec.name: spec.shape for spec in self._base.tensors}
        check_state(state, mine, shapes)
        state = up_to_date("Sync", state)
        if self.memory is not None:
            check_buffer_shapes(state["memory"], shapes, self.memory.buffers)
        plan = plan_in(state, shapes)
        self.store.load_state_dict(state["memory"], self.comm.device)
        self.step, self.skipped_steps = state["step"], state["skipped_steps"]
        self.store.loss_scale = state["scale"]
        if self._rates is not None:
            self._rates.load_state_dict(state["rates"])
        self.profile = Profile.from_json(state["profile"])
        if self.comm.world_size == 1:
            self.plan = plan
            return
        self._stop_observing()
        if state["observed"] is not None:
            self._observe()
            assert self._observer is not None
            self._observer.records, self._observer.forward_s = (list(part) for part in state["observed"])
        if state["costs"] is not None:
            self.costs = Costs.from_json(state["costs"])
        self._tuner = None
        if state["probe_times_s"] is not None:
            options = self.scheme.options(self.given)
            self._tuner = Tuner(self.comm, options, len(self.profile.tensors), state["probe_times_s"])
        if self._plan_watch is not None and state.get("plan_watch") is not None:
            self._plan_watch.load_state_dict(state["plan_watch"])
        self._install(plan)

    def detach(self) -> None:
        """Remove every hook and stop the threads; gradients stay local from now on."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stop_observing()
        if self.comm.world_size > 1:
            self._watch.close()
            if self._plan_watch is not None:
                self._plan_watch.close()
            self._exchange.close()
            self.comm.release()
        release_model(self._model)

    # ---- planning ---------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, str]:
        """Return what determines the exchange besides the model, as text."""
        memory = self.memory and memories.canonical(self.memory.name, asdict(self.memory.options))
        options = sorted(asdict(self.scheme.options(self.given)).items())
        return {"scheme": self.scheme.name, "options": repr(options), "memory_kind": str(memory)}

    def _identity_digest(self, has_costs: bool) -> str:
        text = repr((sorted(self._identity().items()), self.seed, has_costs))
        return hashlib.sha256(text.encode()).hexdigest()

    def _observe(self) -> None:
        options: Any = self.scheme.options(self.given)
        steps = getattr(options, "profile_iters", 1) if self.scheme.profiled else int(getattr(options, "rebuild", True))
        if steps:
            self._observer = Observer(self._model, list(self._params), self.comm.device, steps)

    def _first_plan(self) -> Plan:
        costs = placeholder_costs(self.comm.world_size)
        if self.scheme.profiled:
            return make_plan("ddp", self._base, costs)
        return make_plan(self.scheme.name, self._base, costs, self.given)

    def _install(self, plan: Plan) -> None:
        self.plan = plan
        if self.last is not None:
            self.last.freeze()  # it reads the buffers of the plan that goes
        self._exchange.install(plan)

    def _replan(self) -> None:
        assert self._observer is not None
        self.profile = self._observer.profile(self._base, self.comm)
        self._stop_observing()
        options: Any = self.scheme.options(self.given)
        if self.scheme.profiled and not self._costs_given:
            largest = sum(spec.numel for spec in self.profile.tensors)
            self.costs = costs_for(self.comm, self.comm.device, options, largest)
        self.costs = self.costs or placeholder_costs(self.comm.world_size)
        if getattr(options, "search", None) == "measured" and len(self.profile.tensors) > 1:
            self._tuner = Tuner(self.comm, options, len(self.profile.tensors))
        if self._plan_watch is None:
            self._plan_with(self._tuner.options(self.given) if self._tuner else self.given)
            return
        self._plan_with(self._plan_watch.options(self.given))
        self._plan_watch.planned(self.plan)

    def _plan_with(self, options: dict[str, Any]) -> None:
        costs = self.costs
        assert costs is not None
        text = agree(self.comm, lambda: make_plan(self.scheme.name, self.profile, costs, options).to_json())
        plan = Plan.from_json(text)
        check_same(self.comm, plan.digest, "the plan")
        if self.memory is not None:
            check_memory(plan, self.memory)  # measured costs may have brought in a reducer
        self._install(plan)

    def _stop_observing(self) -> None:
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _hook(self, slot: Slot, _param: torch.Tensor) -> None:
        if not self._enabled:
            return
        observer = self._observer
        if observer is not None:
            observer.seen(slot.name)
            began = perf_counter()
        if not self._open:
            self._begin()
        if self._backward.enter():
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_graph)
        if self._plan_watch is not None and self._plan_watch.measures:
            self._plan_watch.gradient(slot.name, slot.param.grad, self.store)
        self._exchange.arrive(slot)
        if observer is not None:
            observer.hook_took(perf_counter() - began)

    def _begin(self) -> None:
        self._watch.check()
        self._open, self._exchanged = True, False
        self._backward.begin()
        self.store.follow(self._scaler.get_scale() if self._scaler is not None else 1.0)
        if self._rates is not None:
            self._rates.begin()
        self._exchange.begin(self.step, self.seed)

    def _end_of_graph(self) -> None:
        # A graph nested in the backward pass ends before gradients of the outer one have arrived.
        if self._open and not (self._exchange.incomplete() and nested()):
            self._finish()

    def _finish(self) -> None:
        """End of backward: the averaged gradients are in `.grad`, or the step is undone on every rank."""
        with torch.no_grad():
            finite = self._exchange.finish()
            if not finite:
                self._undo()
            if self._rates is not None:
                self._rates.end()
        self._open, self._exchanged = False, True
        self._stepped.clear()
        self.last = self._exchange.stats(skipped=not finite)
        self.step += 1
        began, plan, stats = perf_counter(), self.plan, self.last
        stats.observed = self.scheme.profiled and self._observer is not None
        if self._observer is not None:
            self._observer.end_step()
            if self._observer.complete:
                self._replan()
        elif self._plan_watch is not None:
            if self._plan_watch.end_step(self.store):
                self._observe()
        elif self._tuner is not None and not self._tuner.finished and self._tuner.end_step():
            self._plan_with(self._tuner.options(self.given))
        if self.scheme.profiled and self.plan is not plan:
            stats.plan_s = perf_counter() - began

    def _undo(self) -> None:
        # With a GradScaler the gradients must be non-finite on every rank, so that all of them skip; without one, no
        # gradient means that the optimizer leaves every parameter alone.
        self.skipped_steps += 1
        for param in self._params.values():
            if self._scaler is None:
                param.grad = None
            elif param.grad is not None:
                param.grad.fill_(float("nan"))

    def _before_optimizer(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if unfrozen := next((name for name, p in self._frozen.items() if p.requires_grad), None):
            raise ConfigError(f"parameter {unfrozen} was unfrozen after attach; detach and attach again on every rank")
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer again
        if (
            not self._exchanged or id(optimizer) in self._stepped
        ) and closure is None:  # a closure has its own backward
            self.synchronize()  # no hook fired on this rank; the others are waiting for it

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        self._stepped.add(id(optimizer))
