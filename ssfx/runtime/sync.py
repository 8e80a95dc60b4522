"""Sync: the handle of an exchange that `attach` returns: what it did, its state, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ssfx.core.errors import ConfigError
from ssfx.core.plugins import through
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.runtime.checks import load_facts
from ssfx.runtime.lifetime import release_model
from ssfx.runtime.step import TrainingStep
from ssfx.runtime.store import STATE_FORMAT, identity, plan_of_state
from ssfx.simulator.pricing.degenerate import asked_and_sent

if TYPE_CHECKING:
    from ssfx.advice import Advice


class Sync(TrainingStep):
    """The exchange attached to a model; see `attach`.

    Public: no_sync, exact, synchronize, used, discard, join, stats, state_dict, load_state_dict, detach, plan.
    """

    def __repr__(self) -> str:
        online = self.scheme.online(self.given)
        density = f" at density {online.density:g}" if online.density is not None else ""
        compressor = f", {online.compressor}{density}" if online.compressor else ""
        lanes = [lane for _, lane in self.plan.lanes()]
        state = "profiling" if self.settling else f"plan {self.plan.digest} with {len(lanes)} messages"
        if compressor and not self.settling and all(segment.dense for lane in lanes for segment in lane.segments):
            state += ", all sent dense"
        elif not self.settling and (far := asked_and_sent(self.plan, online.density)):
            state += f", {far}"
        return (
            f"<ssfx.Sync: {self.scheme.name}{compressor} on {self.comm.world_size} ranks; "
            f"{len(self._params)} tensors, {state}, step {self.step}>"
        )

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of what keeps the handle, or a file of it, has None there: it has no exchange."""
        return type(None), ()

    @property
    def settling(self) -> bool:
        """True while gradients are observed for a plan that is to be made, or plans are tried."""
        return not self._planner.settled

    @property
    def profile(self) -> Profile:
        """The tensors in the order in which their gradients arrive, with times once they were observed."""
        return self._planner.profile

    @property
    def costs(self) -> Costs | None:
        """The costs that the plan rests on, once a scheme that plans by costs has planned."""
        return self._planner.costs

    def discard(self, parameter: torch.nn.Parameter, where: torch.Tensor | None = None) -> None:
        """Set a gradient to zero, and forget its residual of the latest exchange, before the optimizer steps.

        `where` (bool, in the parameter's shape or one that broadcasts to it) names elements, such as rows of an
        embedding that a mask leaves out; None is all of them. A whole `.grad` that a script sets to zeros or None
        itself needs no call. ConfigError for any other `where`, and for one of fewer dimensions, which are not rows.
        """
        name = next((name for name, p in self._params.items() if p is parameter), None)
        if name is None:
            raise ConfigError("discard takes a parameter of the attached model whose gradient is exchanged")
        where = None if where is None else _elements(where, parameter)
        if parameter.grad is None:
            return
        if where is None:
            parameter.grad.zero_()
        else:
            parameter.grad.masked_fill_(where, 0.0)
        if self.comm.world_size > 1:
            self._commit.discard(name, where)

    def used(self, *parameters: torch.nn.Parameter) -> None:
        """Say that the script has moved weights by their averaged gradients without an optimizer's step.

        The exchange of `parameters`, of all where none is named, counts from then on. Call it after every such move and
        before the next backward pass. ConfigError for a parameter that is not exchanged.
        """
        chosen = {id(p) for p in parameters}
        names = {name for name, p in self._params.items() if not chosen or id(p) in chosen}
        if chosen and len(names) < len(chosen):
            raise ConfigError("used takes parameters of the attached model whose gradients are exchanged")
        if self.comm.world_size > 1:
            self._commit.used(names)
            self._parted.note(self.step, self._params.values())

    def stats(self) -> dict[str, float | int | str | None]:
        """Return what the exchange did so far: step counts, the plan, the latest step's bytes and densities."""
        summary: dict[str, float | int | str | None] = {
            "steps": self.step,
            "skipped_steps": self.skipped_steps,
            "discarded_exchanges": self._commit.discarded if self.comm.world_size > 1 else 0,
            "cut_values": self._exchange.cut_values if self.comm.world_size > 1 else 0,
            "scheme": self.plan.scheme,
            "plan": self.plan.digest,
            "lanes": sum(1 for _ in self.plan.lanes()),
        }
        if self.memory is not None and self.memory.stateful:
            if self._planner.watch is not None:
                summary["replans"] = len(self._planner.watch.replans)
            summary["residual_norm"] = self.store.norm(self.memory.buffers[0])
            summary["threshold"] = self.store.threshold()
        return summary | (self.last.summary() if self.last is not None else {})

    def advise(self, cluster: str = "local", **options: Any) -> Advice:
        """Return which scheme is best for this model on `cluster`, by what the first steps took here; see `advise_on`.

        `print` it for the answer in words. `sync.profile.save(path)` keeps what it rests on, for `ssfx advise
        profile=PATH`. ConfigError before any gradient was observed, and where the cluster has other devices.
        """
        if self.profile.origin.kind != "measured":
            raise ConfigError("no gradients were observed yet: train some steps, on two ranks or more, then ask")
        advice: Advice = through("advise_on")(self.profile, cluster, **options)
        return advice

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: memory by parameter name, the plan in use, counters; save one file per rank."""
        return {
            "format": STATE_FORMAT,
            "world_size": self.comm.world_size,
            "rank": self.comm.rank,
            **identity(self.scheme, self.given, self.memory, self._exempt),
            "plan": self.plan.to_json(),
            "step": self.step,
            "skipped_steps": self.skipped_steps,
            "seed": self.seed,
            "scale": self.store.loss_scale,
            "rates": self._rates.state_dict() if self._rates else None,
            "memory": self.store.state_dict(),
            **self._planner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; call it on every rank, before the same step.

        ConfigError for another rank, world size, scheme or model, and on every rank where their states do not go
        together; RunError where another rank loads none. Nothing has been loaded then.
        """
        if self.comm.world_size == 1:
            plan = self._plan_of(state)
        else:
            with self._peers.loading() as facts:
                plan = self._plan_of(state)
                facts |= load_facts(state, plan)
        if self.comm.world_size > 1:
            self._commit.forget()
        self.store.load_state_dict(state["memory"], self.comm.device)
        self.step, self.skipped_steps = state["step"], state["skipped_steps"]
        self.store.loss_scale = state["scale"]
        if self._rates is not None:
            self._rates.load_state_dict(state["rates"])
        self._planner.load_state_dict(state)
        if self.comm.world_size == 1:
            self.plan = plan
        else:
            self._install(plan)

    def _plan_of(self, state: Any) -> Plan:
        mine = {
            "world_size": self.comm.world_size,
            "rank": self.comm.rank,
            "seed": self.seed,
            **identity(self.scheme, self.given, self.memory, self._exempt),
        }
        shapes = {spec.name: spec.shape for spec in self._base.tensors}
        frozen = {name: tuple(p.shape) for name, p in self._members.params.items() if name not in self._params}
        plan = plan_of_state(state, mine, shapes, self.memory, frozen)
        if self._rates is not None and state["rates"] is None:
            raise ConfigError(
                "this state has no learning rates, which memory=lr_scaled needs; resume from another file"
            )
        return plan

    def detach(self) -> None:
        """Remove every hook and stop the threads; gradients stay local from now on."""
        if self.comm.world_size > 1 and self._buffers is not None:
            self._buffers.write()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._planner.close()
        self._members.close()
        if self.comm.world_size > 1:
            self._dropped.detach()
            self._optimizer_hooks.close()
            self._exchange.close()
            self._peers.close("has detached")
            self.comm.release()
        else:
            self._alone.close()
        self._habits.close()
        release_model(self._model)


def _elements(where: Any, parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return the elements that `where` names, in the parameter's shape; ConfigError for what is no such mask."""
    shape, rows = tuple(parameter.shape), f"rows[:{', None' * (parameter.dim() - 1)}]"
    if not isinstance(where, torch.Tensor) or where.dtype != torch.bool:
        got = f"a tensor of {where.dtype}" if isinstance(where, torch.Tensor) else f"a {type(where).__name__}"
        raise ConfigError(f"discard takes a bool tensor that broadcasts to {shape}, got {got}; for rows write {rows}")
    if 0 < where.dim() < parameter.dim():
        raise ConfigError(f"a mask of shape {tuple(where.shape)} names no rows of a weight of {shape}; write {rows}")
    try:
        return where.to(parameter.device).expand(shape)
    except RuntimeError:
        raise ConfigError(f"a mask of shape {tuple(where.shape)} does not broadcast to a weight of {shape}") from None
