"""Which plan the exchange follows from step to step: gradients are observed, costs measured, plans made and watched.

Schemes that plan at once need none of it but the observed order of gradients. Source: SSFusion, section IV-B (D-43).
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import warmup_density
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs, placeholder_costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.runtime.adapt import PlanTrial, PlanWatch, too_short
from ssfx.runtime.checks import agree, check_same
from ssfx.runtime.hooks import timing_hook
from ssfx.runtime.online import Observer, costs_for
from ssfx.runtime.stats import StepStats
from ssfx.schemes import Scheme
from ssfx.schemes.make_plan import check_memory, make_plan, make_plans
from ssfx.schemes.online_planning import OnlinePlanning

_log = logging.getLogger("ssfx")


class StepClock:
    """Times steps from the end of the forward pass to written averages, or from the last step where none was seen."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._began = perf_counter()
        self._handle = model.register_forward_hook(timing_hook(self._mark))

    def _mark(self, *_: Any) -> None:
        self._began = perf_counter()

    def end_step(self) -> float:
        """Return the seconds of the step that ends now."""
        began, self._began = self._began, perf_counter()
        return self._began - began

    def close(self) -> None:
        """Remove the forward hook."""
        self._handle.remove()


class Planner:
    """Makes the plan that `install` puts into use, on several ranks the same; all that it knows survives a resume."""

    def __init__(
        self,
        comm: Comm,
        model: torch.nn.Module,
        scheme: Scheme,
        given: dict[str, Any],
        memory: Memory | None,
        base: Profile,
        costs: Costs | None,
        install: Callable[..., None],
        profile: Profile | None = None,
    ) -> None:
        self.profile = base if profile is None else _of_model(profile, base)
        self._profile_given = profile is not None
        """Nothing is observed, timed or tried then: all plans are made from that profile."""
        self.costs = costs
        self.observer: Observer | None = None
        """Records gradients as they arrive while a scheme observes them."""
        self.watch: PlanWatch | None = None
        self._comm, self._model, self._scheme, self._given, self._memory = comm, model, scheme, given, memory
        self._base, self._install, self._costs_given = base, install, costs is not None
        self._online = scheme.online(given)
        self._trial: PlanTrial | None = None
        self.dense: frozenset[str] = frozenset()
        """Tensors that travel as they are since their compression undid a step."""
        self._steps = 0
        self._clock: StepClock | None = None
        if comm.world_size == 1:
            return
        if not self._online.dense_steps:
            self._observe()
        if self._online.limits is not None and not self._profile_given:
            self.watch = PlanWatch(comm, self._online.limits)
            self._clock = StepClock(model)

    def first_plan(self) -> Plan:
        """Return the plan to begin with: dense for schemes that have to observe gradients before they plan."""
        costs = placeholder_costs(self._comm.world_size)
        if self._profile_given:
            self.costs = self.costs or costs
        if self._online.dense_steps:
            return make_plan("ddp", self._base, costs)
        if self._profile_given:
            return self._agreed(self._given_at(0))[0]
        if self._scheme.profiled:
            return make_plan("ddp", self._base, costs)
        return make_plan(self._scheme.name, self._base, costs, self._given_at(0))

    @property
    def settled(self) -> bool:
        """True when gradients are no longer observed, nor plans tried, nor everything sent dense at first."""
        return self.observer is None and self._trial is None and self._steps >= self._online.dense_steps

    def end_step(self, stats: StepStats) -> bool:
        """Take note of a finished step; return whether another plan was put into use."""
        before, self._steps = self._given_at(stats.step), stats.step + 1
        stats.observed = self._scheme.profiled and not self.settled
        seconds = self._clock.end_step() if self._clock is not None else 0.0
        if self._steps <= self._online.dense_steps:
            return self._steps == self._online.dense_steps and self._end_of_dense_steps()
        if self.observer is not None:
            self.observer.end_step()
            if self.observer.complete:
                self._plan()
                return True
            return False
        if self._trial is not None:
            if not self._trial.end_step(seconds):
                return False
            self._go_on_with(self._trial)
            return True
        if self.watch is not None and self.watch.end_step(seconds):
            self._observe()
        if self._given_at(self._steps) != before:
            self._plan_with(self._given_at(self._steps))
            return True
        return False

    def _end_of_dense_steps(self) -> bool:
        """Begin to observe for a plan of the scheme, or put one into use; return whether there is one now."""
        self._observe()
        if self._scheme.profiled and self.observer is not None:
            return False
        self.costs = self.costs or placeholder_costs(self._comm.world_size)
        self._plan_with(self._given_at(self._steps))
        return True

    def close(self) -> None:
        """Remove all hooks."""
        self._stop_observing()
        if self._clock is not None:
            self._clock.close()

    def _given_at(self, step: int) -> dict[str, Any]:
        return given_at(step, self._given, self._online)

    # ---- planning ---------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        if self._online.observed_steps and not self._profile_given:
            names = [spec.name for spec in reversed(self._base.tensors)]
            self.observer = Observer(self._model, names, self._comm.device, self._online.observed_steps)

    def _stop_observing(self) -> None:
        if self.observer is not None:
            self.observer.close()
            self.observer = None

    def _plan(self) -> None:
        assert self.observer is not None
        self.profile = self.observer.profile(self._base, self._comm)
        hook_s = self.observer.hook_s()
        self._stop_observing()
        given = self._given_at(self._steps)
        online = self._scheme.online(given)
        if self._scheme.profiled and not self._costs_given:
            largest = sum(spec.numel for spec in self.profile.tensors)
            self.costs = costs_for(self._comm, self._comm.device, online, largest, hook_s)
        self.costs = self.costs or placeholder_costs(self._comm.world_size)
        timed = 0 if self._costs_given else online.trial_steps
        plans = self._plan_with(given, timed)
        self._trial = PlanTrial(self._comm, plans, timed) if len(plans) > 1 else None
        self._hold_to(None)

    def _plan_with(self, given: dict[str, Any], timed: int = 0) -> list[Plan]:
        """Put the plan into use that all ranks agree on; return it and, to time so many steps, those to try beside it.

        Nothing is tried where the rest of the run is too short; the plan's notes say so.
        """
        plans = self._agreed(given, timed)
        self._install(plans[0], for_a_while=len(plans) > 1)
        return plans

    def _agreed(self, given: dict[str, Any], timed: int = 0) -> list[Plan]:
        """Return the plans that rank 0 makes, on every rank."""
        costs = self.costs
        assert costs is not None

        def made() -> list[str]:
            if timed:
                plans = make_plans(self._scheme.name, self.profile, costs, given)
                run_steps = self._scheme.online(given).run_steps
                left = run_steps - self._steps if run_steps else None
                if why := too_short(left, len(plans), timed):
                    plans = [replace(plans[0], notes=(*plans[0].notes, ("tried", why)))]
                    _log.info("%s", why)
            else:
                plans = [make_plan(self._scheme.name, self.profile, costs, given)]
            return [plan.to_json() for plan in plans]

        plans = [Plan.from_json(text) for text in agree(self._comm, made)]
        for plan in plans:
            check_same(self._comm, plan.digest, "the plan")
            if self._memory is not None:
                check_memory(plan, self._memory)  # measured costs may have brought in a reducer
        return plans

    def _go_on_with(self, trial: PlanTrial) -> None:
        if not trial.finished:
            self._install(trial.plan, for_a_while=True)
            return
        self._install(replace(trial.plan, notes=(*trial.plan.notes, ("tried", trial.words()))))
        self._trial = None
        self._hold_to(trial.step_s)
        if self._comm.rank == 0:
            _log.info("%s: %s", dict(trial.plan.notes).get("chosen", "a plan"), trial.words())

    def drop(self, plan: Plan, names: frozenset[str]) -> str:
        """Use no more what undid a step of `plan`: it, where others are tried, or the compression of `names`.

        Return what was done; "" for a scheme that does not choose compressors, whose plan stays.
        """
        if not (self._scheme.chooses and names):
            return ""
        if self._trial is not None:
            self._trial.drop()
            self._go_on_with(self._trial)
            return "the plan is dropped, and the others are tried on"
        self.dense |= names
        self._install(plan)
        self._hold_to(None)
        return "these tensors are sent dense from now on"

    def _hold_to(self, step_s: float | None) -> None:
        """Compare what steps take from now on with `step_s`, or with the first ones."""
        if self.watch is not None:
            self.watch.planned(step_s)

    # ---- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on with, between steps; the plan in use is not in it."""
        observer = self.observer
        return {
            "profile": self.profile.to_json(),
            "costs": self.costs.to_json() if self.costs else None,
            "observed": (list(observer.records), list(observer.forward_s)) if observer else None,
            "plan_watch": self.watch.state_dict() if self.watch else None,
            "trial": self._trial.state_dict() if self._trial else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.profile = Profile.from_json(state["profile"])
        if self._comm.world_size == 1:
            return
        self._stop_observing()
        if state["observed"] is not None:
            self._observe()
            assert self.observer is not None
            self.observer.records, self.observer.forward_s = (list(part) for part in state["observed"])
        if state["costs"] is not None:
            self.costs = Costs.from_json(state["costs"])
        if self.watch is not None and state.get("plan_watch") is not None:
            self.watch.load_state_dict(state["plan_watch"])
        self._trial = PlanTrial.resumed(self._comm, state["trial"]) if state.get("trial") is not None else None


def _of_model(profile: Profile, base: Profile) -> Profile:
    """Return `profile`; ConfigError unless it has the tensors of `base`, in any order."""
    mine, given = ({(spec.name, spec.shape) for spec in one.tensors} for one in (base, profile))
    if mine != given:
        name, shape = min(mine ^ given)
        where = "the model has and the profile has not" if (name, shape) in mine else "the profile has, not the model"
        raise ConfigError(f"profile= is of another model: parameter {name} of shape {shape} {where}")
    return profile


STAGES = 4
"""Densities before the final one, as many as the paper's epochs of warm-up."""


def given_at(step: int, given: dict[str, Any], online: OnlinePlanning) -> dict[str, Any]:
    """Return the options to plan with at `step`: `given`, with the density of its stage of a warm-up if any.

    Each stage lasts a STAGES-th of the warm-up; at density 0.001 they have 25, 6.3, 1.6 and 0.4 %.
    """
    steps = online.density_warmup_steps
    if step >= steps or online.density is None:
        return given
    return {**given, "density": warmup_density(step * STAGES // steps, online.density, STAGES), "density_warmup": 0}
