"""One training step of an attached model: gradients arrive, backward ends, optimizers step."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any
from weakref import WeakSet, ref

import torch

from ssfx.collectives.comm import Comm
from ssfx.compressors import build
from ssfx.compressors.memories import Memory
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs, placeholder_costs
from ssfx.planning.exempt import exempted
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.runtime.checks import (
    Optimizers,
    optimizer_facts,
    refuse_inside_ddp,
)
from ssfx.runtime.commit import Commit
from ssfx.runtime.exact import average_exactly
from ssfx.runtime.exchange import Exchange, Slot
from ssfx.runtime.hooks import (
    BackwardPass,
    DdpHabits,
    OptimizerHooks,
    check_step,
    hook,
    nested,
    when_reached,
)
from ssfx.runtime.lifetime import LoneRank, Uneven, arrived, attached_parameters, claim_model, when_dropped
from ssfx.runtime.parted import Parted
from ssfx.runtime.planned_model import PlannedModel
from ssfx.runtime.setup import check_momentum, warm_up
from ssfx.runtime.stats import StepStats, Tracer
from ssfx.runtime.unsound import Unsound
from ssfx.runtime.waiting import Waiting

_log = logging.getLogger("ssfx")


class TrainingStep(PlannedModel, Uneven):
    """What `attach` puts on a model and its optimizers; Sync is its handle.

    A step is: `_hook` for each gradient, the first of which begins the exchange; `_finish` at the end of backward;
    `_before_optimizer` and `_after_optimizer` around the steps that use the averages.
    """

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
        profile: Profile | None = None,
        seed: int,
        trace: bool,
        exempt: frozenset[str] = frozenset(),
        broadcast_buffers: bool = True,
    ) -> None:
        super().__init__(
            model, optimizers, scheme, given, memory, scaler, comm, costs, profile, seed, exempt, broadcast_buffers
        )
        self.step = 0
        self.skipped_steps = 0
        self.last: StepStats | None = None
        self._waiting = Waiting(comm.rank)
        self._parted = Parted(comm)
        self._unsound = Unsound(comm)
        self.tracer = Tracer(trace, comm.rank)
        self._backward = BackwardPass()
        self._enabled = True
        self._heard = False
        """A backward pass has reached this rank since the last exchange."""
        self._open = False
        self._going_on: set[str] = set()
        self._reached_in = -1
        self._exact = self._exact_heard = False
        self._local = self._averaged = self._said_local = False
        """Passes since the latest exchange were inside `no_sync`; averages were written since the latest step."""
        self._late = False
        """Weights came that no exchange was heard of yet, when an optimizer was about to step."""
        self._exchanged = False
        self._stepped: WeakSet[torch.optim.Optimizer] = WeakSet()
        """Optimizers that have stepped since the last exchange; a new one may have the address of one that is gone."""
        self._handles: list[Any] = []
        if comm.world_size == 1:
            claim_model(model)
            self._alone = LoneRank(self._params.values(), optimizers, comm.group)
            self._habits = DdpHabits(model, self.no_sync)
            return
        self._exchange = Exchange(comm, self._members, memory, self.store, self.tracer)
        self._commit = Commit(self._exchange, self._params, self._rates, speaks=comm.rank == 0)
        if memory is not None:
            for spec in self.scheme.online(given).compressors(placeholder_costs(comm.world_size)):
                warm_up(build(spec), memory, comm.device, comm.world_size)
        self._install(self.plan)
        self._reach = torch.compiler.disable(partial(_reached, ref(self)))  # of a step that is compiled as a whole
        self._graph_ends = torch.compiler.disable(self._end_of_graph)
        for slot in self._exchange.slots.values():
            self._listen(slot)
        for optimizer in optimizers:
            self._hook_optimizer(optimizer)
        self._optimizer_hooks = OptimizerHooks(
            optimizers, self._ids_now, attached_parameters, self._take_up, self._commit.stepped
        )
        self._handles.append(model.register_forward_pre_hook(hook(self._before_forward, keeps=self)))
        self._handles.append(model.register_forward_hook(hook(self._after_forward, keeps=self)))
        self._habits = DdpHabits(model, self.no_sync)
        claim_model(model)
        self._dropped = when_dropped(self, self._exchange, self._peers)

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Backward passes inside end with exact averages in `.grad`: nothing is compressed, added or kept.

        For gradients that are read: Fisher information, norms in a log, a Hessian's diagonal. All ranks run the same
        passes inside.
        """
        before, self._exact = self._exact, True
        self._backward.begin()
        try:
            yield
        finally:
            self._exact = before

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate locally; the next one outside exchanges the sum.

        As with torch DDP, a step whose passes were all inside is local.
        """
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before
            self._exchanged = False  # a step without another backward pass has to exchange what was added here

    def synchronize(self) -> None:
        """Exchange `.grad` now; needed only if no backward pass outside `no_sync` did it."""
        if self.comm.world_size == 1:
            return
        if self._open or self._begin():
            self._finish()

    @property
    def optimizers(self) -> Optimizers:
        """The optimizers that step exchanged weights, in the order in which they were made known."""
        return self._optimizer_hooks.known

    def _install(self, plan: Plan, *, for_a_while: bool = False) -> None:
        self.plan = plan = exempted(plan, self._exempt | self._planner.dense)
        self._commit.when_settled(partial(self._put, plan, for_a_while=for_a_while))  # the old plan's messages hold it

    def _put(self, plan: Plan, *, for_a_while: bool) -> None:
        if self.last is not None:
            self.last.freeze()  # it reads the buffers of the plan that goes
        self._exchange.install(plan, self.step, for_a_while=for_a_while)

    def _listen(self, slot: Slot) -> None:
        # Torch keeps what listens to a parameter where Python's garbage collection does not see it.
        self._handles.append(slot.listen(torch.compiler.disable(partial(arrived, ref(self), ref(slot)))))

    def _refresh(self) -> bool:
        """Listen to weights that came to the model since the last look; return whether there are any."""
        if not self._members.stale:
            return False
        fresh = self._exchange.replace(self._members.refresh())
        for slot in fresh:
            self._listen(slot)
        self._commit.replaced({slot.name for slot in fresh})
        return bool(fresh)

    def _ids_now(self) -> set[int]:
        self._late = self._refresh() or self._late
        return self._members.ids

    def _before_forward(self, module: torch.nn.Module, inputs: Any) -> None:
        refuse_inside_ddp(module, inputs)
        if not torch.compiler.is_compiling():
            self._refresh()
            if self._buffers is not None:
                self._buffers.write()

    def _after_forward(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        if not torch.compiler.is_compiling():
            when_reached(outputs, self._reach)

    def _hook(self, slot: Slot) -> None:
        if not self._open:
            self._commit.look(slot.name)
        self._heard = True
        if self._exact:
            self._exact_heard = True
            self._commit.added_to(slot.name)
            if self._backward.enter():
                torch.autograd.Variable._execution_engine.queue_callback(self._graph_ends)
            return
        if not self._enabled or (not self._open and self._habits.accumulates):
            if self._stepped:
                self._stepped.clear()
            self._local, self._exchanged = True, self._exchanged and self._open
            self._commit.added_to(slot.name)
            return
        observer = self._planner.observer
        if observer is not None:
            observer.seen(slot.name)
            began = perf_counter()
        if not self._open:
            self._begin()
        if self._backward.enter():
            torch.autograd.Variable._execution_engine.queue_callback(self._graph_ends)
        if slot.heard_last():  # else it is taken at the end of the backward pass
            self._exchange.arrive(slot)
        if observer is not None:
            observer.hook_took(perf_counter() - began)

    def _begin(self) -> bool:
        """Start an exchange; return False where no rank has a gradient, and there is none."""
        self.comm.begins()
        self._members.look()
        self._refresh()
        self._habits.look()
        self.take_part()
        members = self._members
        members.idle = not (self._heard or self.ended_here) and self._commit.idle(self._params.values())
        alarm = self._news()
        if members.watching and members.heard(self.comm, mine=alarm):
            self._commit.settle(end=True)
            if self._agree(self.optimizers).idle:
                members.make_equal(self.comm)
                self._exchanged = True
                return False
            alarm = False
        self._going_on = self._commit.settle()
        self._open, self._exchanged, self._late = True, False, False
        self._backward.begin()
        self.store.follow(self.scaler.get_scale() if self.scaler is not None else 1.0)
        if self._rates is not None:
            self._rates.begin()
        self._exchange.begin(self.step, self.seed, self._going_on, alarm=alarm)
        return True

    def _news(self) -> bool:
        """Return whether the other ranks must hear of weights or buffers before gradients are averaged."""
        return self._members.news() or (self._buffers is not None and self._buffers.resized())

    def _end_of_graph(self) -> None:
        # A graph nested in the backward pass ends before gradients of the outer one have arrived.
        if self._exact_heard and not nested():
            self._average_exactly()
        if self._open and not (self._exchange.incomplete() and nested()):
            self._finish()

    def _average_exactly(self) -> None:
        self._exact_heard = False
        self._backward.begin()
        trained = [param for name, param in self._params.items() if name not in self._members.resting]
        average_exactly(trained, self.comm)
        self._ended()

    def _ended(self) -> None:
        """Averages are in `.grad`, on all ranks."""
        self._open, self._exchanged, self._heard, self._local, self._averaged = False, True, False, False, True
        self._stepped.clear()
        self._peers.exchanges += 1

    def _finish(self) -> None:
        """End of backward: the averaged gradients are in `.grad`, or the step is undone on every rank."""
        with torch.no_grad():
            finite, idle = self._exchange.finish(), False
            if not finite and self._members.heard(self.comm, mine=self._news()):
                finite, idle = self._again()
            self._members.make_equal(self.comm)
            if finite and self.divides_by_active:
                exchanged = self._exchange.exchanged()
                grads = [p.grad for name, p in self._params.items() if name in exchanged and p.grad is not None]
                torch._foreach_mul_(grads, self.share_of_active())
            if not idle:
                self._commit.begin(self._exchange.exchanged() if finite else set())
            if not (finite or idle):
                self.skipped_steps += 1
                exchange = self._exchange
                self._unsound.look(self.step, exchange.messages, exchange.finite, self._params.values())
                if (why := self._commit.undo(self.scaler, self.skipped_steps)) is not None:
                    _log.warning("step %d was undone on every rank (%d so far): %s", self.step, self.skipped_steps, why)
            if self._buffers is not None:
                self._buffers.exchange()
        self._ended()
        if idle:
            return
        self.last = self._exchange.stats(skipped=not finite)
        self.step += 1
        self._waiting.look(self.step, self.last)
        if not self._join_config.enable:  # the end of `join` compares
            self._parted.look(self.step, self._facts)
        self._unsound.act(self._planner, self.plan)
        began = perf_counter()
        if self._planner.end_step(self.last) and self.scheme.profiled:
            self.last.plan_s = perf_counter() - began

    def _facts(self) -> dict[str, str]:
        thrown_away = str(self._commit.discarded)
        return {**optimizer_facts(self.optimizers), "number of averages that were thrown away": thrown_away}

    def _again(self) -> tuple[bool, bool]:
        """Agree with the other ranks and exchange once more; return whether it is finite, and whether none has any."""
        if self._going_on:
            raise ConfigError(
                "weights were added, frozen or thawed while averaged gradients of an earlier backward pass were still "
                "in .grad; call optimizer.zero_grad() or optimizer.step() before that"
            )
        if self._agree(self.optimizers).idle:
            return False, True
        self._exchange.begin(self.step, self.seed)
        return self._exchange.finish(), False

    def _take_up(self, optimizer: torch.optim.Optimizer) -> None:
        """Treat an optimizer that was made after attach as one that was given, from its first step on."""
        if self.memory is not None:
            check_momentum(self.memory, (optimizer,))
        if self._rates is not None:
            self._rates.follow(optimizer)
            _log.warning("memory=lr_scaled follows the rate of the new optimizer from its second step on")
        self._hook_optimizer(optimizer)

    def _hook_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles.append(optimizer.register_step_pre_hook(torch.compiler.disable(self._before_optimizer)))
        self._handles.append(optimizer.register_step_post_hook(torch.compiler.disable(self._after_optimizer)))

    def _before_optimizer(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        check_step(optimizer, under_way=self._open)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer again
        self._commit.in_closure = closure is not None
        if closure is not None:  # it has its own backward pass, or hands out the loss of one before
            watched = partial(self._evaluated, optimizer, closure)
            return ((args[0], watched, *args[2:]), kwargs) if len(args) > 1 else (args, kwargs | {"closure": watched})
        self._catch_up(optimizer)
        self._commit.before(optimizer)
        return None

    def _evaluated(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Any:
        loss = closure()
        check_step(optimizer, under_way=self._open)
        self._catch_up(optimizer)
        self._commit.before(optimizer)
        return loss

    def _catch_up(self, optimizer: torch.optim.Optimizer) -> None:
        """Exchange what no hook has: passes were local, or this rank had none, and others are waiting for it."""
        if self._local and not self._averaged and optimizer not in self._stepped:
            if not self._said_local and self.comm.rank == 0:
                self._said_local = True
                _log.warning(
                    "this step is local to each rank, as with torch DDP: all its backward passes were inside "
                    "no_sync(); call sync.synchronize() before it to step with averaged gradients"
                )
            return
        if not self._exchanged or optimizer in self._stepped or self._refresh() or self._late:
            self.synchronize()

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        self._stepped.add(optimizer)
        self._commit.in_closure = self._averaged = False
        self._commit.stepped(optimizer)
        if self._local:
            self._parted.forget()
        else:
            self._parted.note(self.step, self._params.values())
        if self._buffers is not None:
            self._buffers.write()


def _reached(sync: ref[TrainingStep]) -> None:
    """Before a pass's gradients: listen to weights that came unseen, and end the exchange even if all of them nest."""
    task: int = torch._C._current_graph_task_id()
    if (there := sync()) is not None and there._reached_in != task:
        there._reached_in = task  # once, however many outputs the model has
        there._members.look()
        there._refresh()
        torch.autograd.Variable._execution_engine.queue_callback(there._graph_ends)
