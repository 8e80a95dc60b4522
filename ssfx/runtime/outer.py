"""OuterSync: ranks train alone for a round, then exchange what they have learnt, and an outer optimizer steps.

Nothing is exchanged in backward: gradients, clipping, loss scales and the optimizer are each rank's own. After a step
that is due, d = outer - own weights is exchanged as a gradient is otherwise: by a plan, with compressor and memory.
Source: Douillard et al. 2023 (DiLoCo), algorithm 1; 2025 (Streaming DiLoCo), algorithm 2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any
from weakref import finalize

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError, RunError
from ssfx.planning.costs import placeholder_costs
from ssfx.planning.exempt import exempted
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.planning.rounds import Rounds
from ssfx.runtime.checks import Optimizers, attach_facts, check_agreed, model_facts
from ssfx.runtime.handle import Handle
from ssfx.runtime.hooks import hook
from ssfx.runtime.lifetime import Peers, claim_model, release_model
from ssfx.runtime.online import parameter_names, registration_profile
from ssfx.runtime.outer_state import check_state
from ssfx.runtime.parted import Parted, fingerprint_of
from ssfx.runtime.scaler_steps import leave, watch
from ssfx.runtime.setup import average_buffers, broadcast_model
from ssfx.runtime.stats import Tracer
from ssfx.runtime.store import STATE_FORMAT, Store, identity
from ssfx.runtime.sync import Sync
from ssfx.runtime.vector_exchange import VectorExchange
from ssfx.schemes import schemes
from ssfx.schemes.local_updates import fragments, too_few
from ssfx.schemes.make_plan import check_memory, make_plan

_log = logging.getLogger("ssfx")
Weights = dict[str, torch.Tensor]
MOST_UNDONE = 3
"""So many rounds in a row that a number which is not finite undoes end the run."""
COUNTS = ("step", "skipped_steps", "exchanges", "undone_rounds")


class OuterSync(Handle):
    """The exchange of rounds attached to a model: what `attach` returns for a scheme of local updates.

    Public: outer, synchronize, no_sync, stats, state_dict, load_state_dict, detach. `inside` exchanges gradients every
    step inside a group of `rounds.ranks_per_group` ranks, whose weights are equal: their mean is that of groups.
    """

    last = profile = costs = None
    """What an exchange of every step knows."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Optimizers,
        *,
        scheme: str,
        given: dict[str, Any],
        rounds: Rounds,
        memory: Memory | None,
        scaler: torch.amp.GradScaler | None,
        comm: Comm,
        seed: int,
        exempt: frozenset[str] = frozenset(),
        broadcast_buffers: bool = True,
    ) -> None:
        if len(optimizers) != 1:
            raise ConfigError(
                f"scheme={scheme} counts the steps of one optimizer; give attach one, got {len(optimizers)}"
            )
        self.comm, self.scheme, self.rounds, self.seed = comm, schemes[scheme], rounds, seed
        if (said := too_few(rounds, self.scheme.online(given).run_steps)) and comm.rank == 0:
            _log.warning(said)
        given = {name: value for name, value in given.items() if name != "run_steps"}  # a run may go on for longer
        self.given, self.memory, self.store = given, memory, Store()
        self.tracer = Tracer(False, comm.rank)
        self.step = self.skipped_steps = self.exchanges = self.undone_rounds = 0
        self.exchange_s = self.waited_s = self.calls_s = 0.0
        """Seconds after the latest step, those of them in which it waited for weights, and in which it compressed."""
        self._undone_in_a_row = 0
        self._model, self._exempt, self.optimizer = model, exempt, optimizers[0]
        self._params = parameter_names(model)
        kind = identity(self.scheme, given, memory)["memory_kind"]
        # Loss scales are each rank's own.
        facts = attach_facts(self.scheme, given, kind, seed, False, exempt, None) | model_facts(model, optimizers)
        facts["GradScaler"] = "none" if scaler is None else "given"
        check_agreed(comm, facts, "attach with the same model, optimizer and options on every rank")
        broadcast_model(model, comm)
        self._with_buffers = broadcast_buffers
        self._peers, self._parted = Peers(comm), Parted(comm)
        comm.look = self._peers.look
        base = registration_profile(self._params, None, optimizers)
        self.plan = self._planned(base)
        if memory is not None:
            check_memory(self.plan, memory)
        self._parts = [self._exchange_of(self._planned(part)) for part in fragments(base, rounds.fragments)]
        self._outer: Weights = {name: p.detach().clone() for name, p in self._params.items()}
        self._velocity: Weights = {}
        self._sent_at = [0] * rounds.fragments
        """After which step each fragment was last sent."""
        self._under_way: int | None = None
        """The fragment whose exchange has begun, with this rank's weights then; its averages, once they are here."""
        self._sent: Weights = {}
        self._came: tuple[Weights | None] | None = None
        self._held_back: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._in_outer = False
        claim_model(model)
        self.dense_steps = self.scheme.online(given).dense_steps
        """Steps before the first round, in which all ranks average gradients."""
        self.inside: Sync | None = None
        self._inside = 1
        ddp: dict[str, Any] = {"scheme": "ddp", "given": {}, "memory": None, "costs": None, "trace": False}
        ddp |= {"scaler": scaler, "seed": seed, "exempt": exempt, "broadcast_buffers": broadcast_buffers}
        self._make_inside = partial(Sync, model, optimizers, **ddp)
        self._average_inside()
        self._handles: list[Any] = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self.after_step),
        ]
        if self.dense_steps:
            self._handles.append(model.register_forward_pre_hook(hook(self._average_inside, keeps=self)))
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if self._scaler is not None:
            watch(self._scaler, self)

    def _average_inside(self, *forward: Any) -> None:
        """Gradients are averaged every step inside what a group is at this step: all ranks before the first round."""
        ranks = self.comm.world_size if self.step < self.dense_steps else self.rounds.ranks_per_group
        if ranks == self._inside or self.comm.world_size == 1 or (forward and not torch.is_grad_enabled()):
            return  # in an evaluation, which may be of one rank alone
        self._inside = ranks
        if self.inside is not None:
            self.inside.detach()
        self.inside = self._make_inside(comm=self.comm.part(ranks)) if ranks > 1 else None
        if self.inside is not None:
            self.inside.skipped_steps = self.skipped_steps
        claim_model(self._model)

    def _planned(self, part: Profile) -> Plan:
        ranks = self.comm.world_size if self.comm.world_size > 1 else 2 * self.rounds.ranks_per_group
        return exempted(make_plan(self.scheme.name, part, placeholder_costs(ranks), self.given), self._exempt)

    def _exchange_of(self, plan: Plan, count: int = 0) -> VectorExchange:
        made = VectorExchange(plan, self.comm, self.store, self.memory, self.seed, count)
        finalize(self, made.queue.stop)
        return made

    # Hooks hold this object, so that it lives as long as model and optimizer.

    def _before(self, _: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None:
            raise ConfigError(
                "rounds count steps, and step(closure) may evaluate several; call optimizer.step() without one"
            )
        # A gradient that is not finite is left out on this rank alone; the others know nothing of it.
        self._held_back.clear()
        if self.inside is not None:  # which leaves it out on all its ranks
            return
        grads = [p.grad for p in self._params.values() if p.grad is not None and p.grad.numel()]
        if grads and not bool(torch.isfinite(torch.stack(torch._foreach_norm(grads, float("inf")))).all()):
            self.skipped_steps += 1
            for p in self._params.values():
                if p.grad is not None:
                    self._held_back.append((p, p.grad))
                    p.grad = None

    @torch.no_grad()
    def after_step(self, *_: Any) -> None:
        """Count a step, and exchange what is due after it."""
        for p, grad in self._held_back:
            p.grad = grad
        self._held_back.clear()
        self.step += 1
        if self.inside is not None:
            self.skipped_steps = max(self.skipped_steps, self.inside.skipped_steps)
        began, before, clock = perf_counter(), self._seconds(), self.step - self.dense_steps
        if clock <= 0:
            for name, p in self._params.items():
                self._outer[name].copy_(p)
            self._sent_at = [self.step] * len(self._parts)
        if self._under_way is not None and self.rounds.ends(clock) == self._under_way:
            self._end()
        if (number := self.rounds.begins(clock)) is not None:
            self._begin(number)
            if self.rounds.delay == 0:
                self._end()
        self.exchange_s = perf_counter() - began
        self.waited_s, self.calls_s = (now - then for now, then in zip(self._seconds(), before, strict=True))

    def _seconds(self) -> tuple[float, float]:
        return sum(part.waited_s for part in self._parts), sum(part.calls_s for part in self._parts)

    @torch.no_grad()
    def synchronize(self) -> None:
        """End the round now, for all weights that have moved since their last exchange: all ranks have the outer ones.

        Nothing happens right after a round, so that momentum does not act on a difference of zero.
        """
        if self._under_way is not None:
            self._end()
        for number in range(len(self._parts)):
            if self.step > self._sent_at[number]:
                self._begin(number)
                self._end()

    # ---- an exchange ------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        """Send d = outer - own weights of a fragment."""
        self._under_way, self._sent_at[number], names = number, self.step, self._parts[number].plan.by_name
        trained = parameter_names(self._model)
        others = {name for name in trained.keys() | self._params if trained.get(name) is not self._params.get(name)}
        if others:
            raise ConfigError(
                f"scheme={self.scheme.name} exchanges what was trained when it was attached, which {min(others)} "
                "was not or is no more; detach, and attach again"
            )
        self._sent = {name: self._params[name].detach().clone() for name in names}
        self._parts[number].begin({name: self._outer[name] - self._sent[name] for name in names})

    def _receive(self) -> Weights | None:
        assert self._under_way is not None
        if self._came is None:
            self._came = (self._parts[self._under_way].end(),)
        return self._came[0]

    def _end(self) -> None:
        """Wait for the averages, step the outer weights, and go on from them."""
        averages, sent = self._receive(), self._sent
        assert self._under_way is not None
        learnt_since = self.step > self._sent_at[self._under_way]
        self._under_way, self._came, self._sent = None, None, {}
        self.exchanges += 1
        self._peers.exchanges += 1
        if averages is None:
            # A rank's weights are not finite: the round counts for none, and that rank's optimizer begins anew.
            self.undone_rounds += 1
            self._undone_in_a_row += 1
            if not all(bool(torch.isfinite(one).all()) for one in sent.values()):
                self.optimizer.state.clear()
            self._write(self._outer)
            if self._undone_in_a_row >= MOST_UNDONE:
                raise RunError(
                    f"weights of a rank were not finite in {MOST_UNDONE} rounds in a row, up to step {self.step}; use "
                    "a smaller rate, or clip gradients"
                )
            return
        self._undone_in_a_row = 0
        for name, mean in averages.items():
            if momentum := self.rounds.outer_momentum:
                # v <- m v + d; d + m v: Nesterov's step, as torch's SGD takes it
                kept = self._velocity.get(name)
                self._velocity[name] = kept.mul_(momentum).add_(mean) if kept is not None else mean.clone()
                mean = mean.add(self._velocity[name], alpha=momentum)
            self._outer[name].add_(mean, alpha=-self.rounds.outer_lr)
            p, outer = self._params[name], self._outer[name]
            if learnt_since:
                p.add_(outer - sent[name])  # and stays
            else:
                p.copy_(outer)
        if self._with_buffers:
            average_buffers(self._model, self.comm)
        self._parted.note(self.exchanges, self._outer.values())  # type: ignore[arg-type]
        self._parted.look(self.exchanges, dict)

    @torch.no_grad()
    def _write(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, p in self._params.items():
            p.copy_(weights[name])

    # ---- what scripts ask -------------------------------------------------------------------------------------------

    @contextmanager
    def outer(self) -> Iterator[None]:
        """Inside, the model has the outer weights, the same on every rank: to evaluate them, or to save them."""
        kept = {name: p.detach().clone() for name, p in self._params.items()}
        self._write(self._outer)
        self._in_outer = True
        try:
            yield
        finally:
            self._in_outer = False
            self._write(kept)

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward passes inside exchange nothing; outside they do inside a group alone."""
        return self.inside.no_sync() if self.inside is not None else nullcontext()

    def stats(self) -> dict[str, float | int | str | None]:
        """Return counts so far."""
        found: dict[str, float | int | str | None] = {name: getattr(self, name) for name in COUNTS[1:]}
        found |= {"steps": self.step, "scheme": self.scheme.name, "plan": self.plan.digest}
        if self.memory is not None and self.memory.stateful:
            found["residual_norm"] = self.store.norm(self.memory.buffers[0])
        return found

    def _identity(self) -> dict[str, Any]:
        own = {"format": STATE_FORMAT, "world_size": self.comm.world_size, "rank": self.comm.rank, "seed": self.seed}
        return own | identity(self.scheme, self.given, self.memory, self._exempt)

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: outer weights and momentum, what is kept, an exchange under way; a file per rank.

        Beside it save this rank's own model and optimizer: within a round they differ from rank to rank.
        """
        if self._in_outer:
            raise ConfigError("sync.state_dict() is of this rank's own weights: call it outside of sync.outer()")
        number = self._under_way
        under_way = None if number is None else {"fragment": number, "came": self._receive(), "sent": self._sent}
        copies = [{name: one.clone() for name, one in (part or {}).items()} for part in (self._outer, self._velocity)]
        return self._identity() | {
            **{name: getattr(self, name) for name in COUNTS},
            "undone_in_a_row": self._undone_in_a_row,
            "outer": copies[0],
            "velocity": copies[1],
            "memory": self.store.state_dict(),
            "counts": [part.count for part in self._parts],
            "sent_at": list(self._sent_at),
            "under_way": under_way,
            "inside": None if self.inside is None else self.inside.state_dict(),
            "weights": int(fingerprint_of(self._params.values())),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken, after this rank's own model and optimizer were loaded.

        ConfigError for a state of another rank, number of ranks, scheme or model, and where the model is not this
        rank's of that step. Nothing has been loaded then.
        """
        with self._peers.loading() as facts:
            check_state(state, self._identity(), self._params)
            facts["step"] = str(state["step"])
        if self._under_way is not None:
            self._receive()
        for name in COUNTS:
            setattr(self, name, state[name])
        self._average_inside()
        if self.inside is not None and (kept := state["inside"]) is not None and kept["world_size"] == self._inside:
            self.inside.load_state_dict(kept)  # else a first round begins, as it would have where this was saved
        for name, one in state["outer"].items():
            self._outer[name].copy_(one)

        def here(weights: Weights) -> Weights:
            return {name: one.to(self._outer[name].device, copy=True) for name, one in weights.items()}

        self._velocity = here(state["velocity"])
        self.store.load_state_dict(state["memory"], self.comm.device)
        self._undone_in_a_row, self._sent_at = state["undone_in_a_row"], list(state["sent_at"])
        counts = zip(self._parts, state["counts"], strict=True)
        self._parts = [self._exchange_of(part.plan, count) for part, count in counts]
        self._under_way, self._sent, self._came = None, {}, None
        if (under_way := state["under_way"]) is not None:
            sent, came = (
                weights and {name: one.to(self._outer[name].device, copy=True) for name, one in weights.items()}
                for weights in (under_way["sent"], under_way["came"])
            )
            self._under_way, self._sent, self._came = under_way["fragment"], sent, (came,)

    def detach(self) -> None:
        """Exchange no more; the model has the outer weights."""
        if not self._handles:
            return
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._scaler is not None:
            leave(self._scaler, self)
        if self.inside is not None:
            self.inside.detach()
        self._write(self._outer)
        self._peers.close("has detached")
        for part in self._parts:
            part.queue.close()
        self.comm.release()
        release_model(self._model)
