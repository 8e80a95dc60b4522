"""attach(): gradient exchange by a plan, for any torch training script.

    sync = ssfx.attach(model, optimizer, scheme="ssfusion_oi", density=0.01)

From then on `loss.backward()` ends with averaged gradients in `.grad`, as with torch DDP: clipping, GradScaler and any
optimizer work as usual. Nothing is subclassed or wrapped; `sync.detach()` removes every hook.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives import collectives
from ssfx.collectives.comm import Comm
from ssfx.costs import Costs
from ssfx.errors import ConfigError
from ssfx.memories import Memory
from ssfx.plan import Plan
from ssfx.planning import make_plan
from ssfx.profile import Profile
from ssfx.runtime.attach import (
    broadcast_model,
    check_model,
    choose_memory,
    model_device,
    placeholder_costs,
    scheme_options,
)
from ssfx.runtime.calibrate import calibrate
from ssfx.runtime.lane import LaneExecutor, StepKey
from ssfx.runtime.offload import HostWorker
from ssfx.runtime.online import Observer, agree, check_same, parameter_names, registration_profile
from ssfx.runtime.packed import make_lane
from ssfx.runtime.queue import ExchangeQueue
from ssfx.runtime.stats import StepStats, Stopwatch, union_s
from ssfx.runtime.store import Store
from ssfx.runtime.trace import Tracer
from ssfx.schemes import schemes


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    scheme: str = "ddp",
    compressor: str | None = None,
    density: float | None = None,
    memory: str | None = None,
    scaler: torch.amp.GradScaler | None = None,
    process_group: Any = None,
    costs: Costs | None = None,
    seed: int = 0,
    trace: bool = False,
    **options: Any,
) -> Sync:
    """Exchange the model's gradients by `scheme` at the end of every backward pass from now on; return the handle.

    Call it on every rank, after the model is on its device and the process group is up (without one, or with one rank,
    gradients pass through untouched). Parameters and buffers are made equal to rank 0's. `compressor` and `memory` are
    specs such as "topk" or "dgc(value_dtype=float16)"; None takes the scheme's default, and residual error feedback.
    `scaler`: pass the GradScaler if you use one, so that residuals follow its scale. `costs`: planning input for
    profiled schemes; None measures it when planning. Raises ConfigError when the combination cannot work.
    """
    check_model(model)
    entry = schemes[scheme]
    given = scheme_options(compressor, density, options)
    chosen: Any = entry.options(given)
    return Sync(
        model,
        optimizer,
        scheme=scheme,
        given=given,
        memory=choose_memory(chosen.compressor, memory, optimizer),
        scaler=scaler,
        comm=Comm(process_group, model_device(model)),
        costs=costs,
        seed=seed,
        trace=trace,
    )


@dataclass(slots=True)
class _Route:
    """Where a parameter's gradient goes: its lane's position in launch order, and how its segment is placed."""

    name: str
    param: torch.nn.Parameter
    index: int
    lane: LaneExecutor
    segment: int
    host: bool


class Sync:
    """The exchange attached to a model; see `attach`. Public: no_sync, synchronize, stats, state_dict, detach, plan."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
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
        self._scaler = scaler
        self._scale = 1.0
        self._params = parameter_names(model)
        self._base = registration_profile(self._params)
        self.profile: Profile = self._base
        self._tensor_ids = {name: i for i, name in enumerate(sorted(self._params))}
        self._device = comm.device
        self._watch = Stopwatch(self._device, self.tracer)
        self._enabled = True
        self._open = False
        self._exchanged = False
        self._routes: dict[torch.nn.Parameter, _Route] = {}
        self._lanes: list[LaneExecutor] = []
        self._handles: list[Any] = []
        self._lock = threading.Lock()
        self._observer: Observer | None = None
        options: Any = self.scheme.options(given)
        make_plan(scheme, self._base, placeholder_costs(max(2, comm.world_size)), given)  # refuse early, on every rank
        self.plan: Plan = self._first_plan()
        if comm.world_size == 1:
            return
        check_same(comm, self.plan.digest, "the list of trainable parameters or the scheme")
        broadcast_model(model, comm)
        self._queue = ExchangeQueue(self._device)
        self._host = HostWorker(self._device, self._queue.fail)
        watched = (
            getattr(options, "profile_iters", 1) if self.scheme.profiled else int(getattr(options, "rebuild", True))
        )
        if watched:
            self._observer = Observer(model, list(self._params), self._device, watched)
        self._install(self.plan)
        self._handles = [p.register_post_accumulate_grad_hook(self._hook) for p in self._params.values()]
        self._handles.append(optimizer.register_step_pre_hook(self._before_optimizer))
        self._handles.append(optimizer.register_step_post_hook(self._after_optimizer))

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
        for param in self._routes:
            if param.grad is not None:
                self._arrive(param)
        self._finish()

    def stats(self) -> dict[str, float | int | str | None]:
        """Return what the exchange did so far: step counts, the plan, the latest step's bytes and densities."""
        last = self.last
        summary: dict[str, float | int | str | None] = {
            "steps": self.step,
            "skipped_steps": self.skipped_steps,
            "scheme": self.plan.scheme,
            "plan": self.plan.digest,
            "lanes": len(self._lanes),
        }
        if self.memory is not None and self.memory.stateful:
            summary["residual_norm"] = self.store.norm(self.memory.buffers[0])
        if last is not None:
            for field in ("contributed_bytes", "sent_bytes", "comm_s", "sparsify_s", "decode_s", "exposed_comm_s"):
                summary[field] = getattr(last, field)
            summary["achieved_density"] = last.achieved_density
            summary["tensor_missing_rate"] = last.tensor_missing_rate
        return summary

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state: memory by parameter name, the plan in use, counters; save one file per rank."""
        observing = self._observer is not None
        return {
            "format": 1,
            "world_size": self.comm.world_size,
            "rank": self.comm.rank,
            "scheme": self.scheme.name,
            "plan": self.plan.to_json(),
            "profile": self.profile.to_json(),
            "step": self.step,
            "skipped_steps": self.skipped_steps,
            "seed": self.seed,
            "scale": self._scale,
            "memory": self.store.state_dict(),
            "observed": (self._observer.records, self._observer.forward_s) if observing and self._observer else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; ConfigError for another rank, world size, scheme or model."""
        for key, mine in (
            ("world_size", self.comm.world_size), ("rank", self.comm.rank), ("scheme", self.scheme.name),
        ):  # fmt: skip
            if state[key] != mine:
                raise ConfigError(
                    f"this state was saved with {key}={state[key]}, not {mine}; resume with the same {key}"
                )
        plan = Plan.from_json(state["plan"])
        if {spec.name: spec.shape for spec in plan.tensors} != {s.name: s.shape for s in self._base.tensors}:
            raise ConfigError("this state was saved for another model: parameter names or shapes differ")
        self.store.load_state_dict(state["memory"])
        self.step, self.skipped_steps = state["step"], state["skipped_steps"]
        self.seed, self._scale = state["seed"], state["scale"]
        self.profile = Profile.from_json(state["profile"])
        if self.comm.world_size == 1:
            self.plan = plan
            return
        if self._observer is not None:
            if state["observed"] is None:
                self._stop_observing()
            else:
                self._observer.records, self._observer.forward_s = (list(part) for part in state["observed"])
        self._install(plan)

    def detach(self) -> None:
        """Remove every hook and stop the threads; gradients stay local from now on."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stop_observing()
        if self.comm.world_size > 1 and self._lanes:
            self._host.close()
            self._queue.close()
            self._lanes, self._routes = [], {}

    # ---- planning ---------------------------------------------------------------------------------------------------

    def _first_plan(self) -> Plan:
        costs = placeholder_costs(self.comm.world_size)
        if self.scheme.profiled:
            return make_plan("ddp", self._base, costs)
        return make_plan(self.scheme.name, self._base, costs, self.given)

    def _install(self, plan: Plan) -> None:
        self.plan = plan
        self._lanes, self._routes = [], {}
        self._host_segments: dict[tuple[int, int], dict[str, torch.Tensor | None]] = {}
        for index, (_, lane) in enumerate(plan.lanes()):
            executor = make_lane(lane, plan, self.comm, self._device, self.store, self.memory)
            self._lanes.append(executor)
            for segment, spec in enumerate(lane.segments):
                for name in spec.tensors:
                    param = self._params[name]
                    self._routes[param] = _Route(name, param, index, executor, segment, spec.placement == "host")
        self._nbytes = sum(lane.nbytes for lane in self._lanes)
        self._sent_bytes = sum(
            collectives[lane.lane.collective].traffic(lane.nbytes, self.comm.world_size).sent_bytes
            for lane in self._lanes
        )

    def _replan(self) -> None:
        assert self._observer is not None
        self.profile = self._observer.profile(self._base, self.comm)
        self._stop_observing()
        costs = self.costs or placeholder_costs(self.comm.world_size)
        options: Any = self.scheme.options(self.given)
        if self.scheme.profiled and self.costs is None and options.compressor is not None:
            largest = sum(spec.numel for spec in self.profile.tensors)
            costs = calibrate(self.comm, self._device, options.compressor, options.density, largest)
        self.costs = costs
        text = agree(self.comm, lambda: make_plan(self.scheme.name, self.profile, costs, self.given).to_json())
        plan = Plan.from_json(text)
        check_same(self.comm, plan.digest, "the plan")
        self._install(plan)

    def _stop_observing(self) -> None:
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _hook(self, param: torch.Tensor) -> None:
        if not self._enabled or param not in self._routes:
            return
        if self._observer is not None:
            self._observer.seen(self._routes[param].name)  # type: ignore[index]
        began = perf_counter()
        if not self._open:
            self._begin()
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._arrive(param)  # type: ignore[arg-type]
        if self._observer is not None:
            self._observer.hook_took(perf_counter() - began)

    def _begin(self) -> None:
        self._open = True
        self._exchanged = False
        self._follow_scale()
        self._watch.reset()
        self._waiting = set(self._routes)
        key = StepKey(self.step, self.seed, self._tensor_ids)
        for lane in self._lanes:
            lane.begin(key)
        self._segments_left = [len(lane.lane.segments) for lane in self._lanes]
        self._events: list[list[torch.cuda.Event]] = [[] for _ in self._lanes]
        self._queue.begin(self._lanes, hold=not self.plan.overlap)

    def _arrive(self, param: torch.nn.Parameter) -> None:
        """Take one gradient in; the last of a segment compresses it, the last of a lane makes the lane ready."""
        if param not in self._waiting:
            return  # its gradient was accumulated again; what is in the lane is exchanged at most once
        self._waiting.remove(param)
        route, grad = self._routes[param], param.grad
        if grad is not None and grad.layout != torch.strided:
            raise ConfigError(f"parameter {route.name} has a {grad.layout} gradient; build its layer with sparse=False")
        lane, segment = route.lane, route.segment
        if route.host:
            pieces = self._host_segments.setdefault((route.index, segment), {})
            pieces[route.name] = grad
            if lane.arrived(route.name) is not None:
                del self._host_segments[(route.index, segment)]
                self._offload(route.index, lane, segment, pieces)
            return
        if lane.lane.segments[segment].dense:
            lane.add(route.name, grad)
            done = lane.arrived(route.name)
        else:
            with self._watch.time("compress", route.name):
                lane.add(route.name, grad)
                done = lane.arrived(route.name)
                if done is not None:
                    lane.compress(segment)
        if done is not None:
            self._segment_done(route.index, self._mark())

    def _mark(self) -> list[torch.cuda.Event]:
        if self._device.type != "cuda":
            return []
        event = torch.cuda.Event()
        event.record()
        return [event]

    def _offload(self, index: int, lane: LaneExecutor, segment: int, pieces: dict[str, torch.Tensor | None]) -> None:
        work = lane.offload(segment, pieces, self._host.stream)
        names = ",".join(pieces)

        def job() -> None:
            began = perf_counter()
            with torch.no_grad():
                events = work()
            self.tracer.span("compress", began, perf_counter(), "host", names)
            self._segment_done(index, events)

        self._host.submit(job)

    def _segment_done(self, index: int, events: list[torch.cuda.Event]) -> None:
        with self._lock:
            self._events[index] += events
            self._segments_left[index] -= 1
            if self._segments_left[index]:
                return
        self._queue.ready(index, self._events[index])

    def _finish(self) -> None:
        """End of backward: fill in what is missing, wait, decide together, write the averaged gradients."""
        with torch.no_grad():
            # A hook that did not fire: the parameter counts as zeros, or as what no_sync micro-steps left in .grad.
            for param in sorted(self._waiting, key=lambda p: self._tensor_ids[self._routes[p].name]):
                self._arrive(param)
            with self._watch.time("wait"):
                self._queue.drain()
                received = [part for lane in self._lanes for part in lane.finish()]
            finite = _all_finite(received)
            with self._watch.time("decompress"):
                self._commit() if finite else self._roll_back()
        self._note(finite)

    def _commit(self) -> None:
        grads, results = [], []
        for lane in self._lanes:
            lane.commit()
            lane.decode()
        for route in self._routes.values():
            result = route.lane.result(route.name)
            dense = route.lane.lane.segments[route.segment].dense
            if dense and self.memory is not None and self.memory.dense_momentum:
                self.memory.dense_update(result.view(-1), self._momentum(route.name, result))
            if route.param.grad is None:
                if route.param.requires_grad:
                    route.param.grad = result.to(route.param.dtype, copy=True)
            else:
                grads.append(route.param.grad)
                results.append(result)
        if grads:
            torch._foreach_copy_(grads, results)

    def _momentum(self, name: str, like: torch.Tensor) -> torch.Tensor:
        buffer = self.store.get(name, "momentum")
        if buffer is None:
            buffer = torch.zeros(like.shape, dtype=torch.float32, device=like.device)
            self.store.put(name, "momentum", buffer)
        return buffer.view(-1)

    def _roll_back(self) -> None:
        # The memory is as before the step. With a GradScaler the gradients must say so on every rank; without one, no
        # gradient means that the optimizer leaves every parameter alone.
        self.skipped_steps += 1
        for param in self._routes:
            if self._scaler is None:
                param.grad = None
            elif param.grad is not None:
                param.grad.fill_(float("nan"))

    def _note(self, finite: bool) -> None:
        self._open = False
        self._exchanged = True
        spans = self._queue.spans
        for lane, span in zip(self._lanes, spans, strict=True):
            self.tracer.span("exchange", span[0], span[1], "network", f"{lane.lane.collective} {lane.nbytes} B")
        self.last = StepStats(
            self.step,
            not finite,
            self._nbytes,
            self._sent_bytes,
            union_s(spans),
            self._watch,
            self._lanes,
            sum(spec.numel for spec in self.plan.tensors),
            len(self.plan.tensors),
        )
        self.step += 1
        if self._observer is not None:
            self._observer.end_step()
            if self._observer.complete:
                self._replan()

    def _follow_scale(self) -> None:
        if self._scaler is None or not self._scaler.is_enabled():
            return
        scale = self._scaler.get_scale()
        if scale != self._scale:
            self.store.scale(scale / self._scale)
            self._scale = scale

    def _before_optimizer(self, *_: Any) -> None:
        if not self._exchanged:
            self.synchronize()  # no hook fired on this rank; the others are waiting for it

    def _after_optimizer(self, *_: Any) -> None:
        self._exchanged = False


def _all_finite(parts: list[torch.Tensor]) -> bool:
    """Return whether every number is finite; sums first, element by element only if a sum is not."""
    if not parts:
        return True
    total = torch.stack([part.sum(dtype=torch.float32).reshape(()) for part in parts]).sum()
    return bool(torch.isfinite(total)) or all(bool(torch.isfinite(part).all()) for part in parts)
