"""Profiles measured on this machine: when each gradient of a model is ready, and what else an iteration takes.

`python -m ssfx.lab.workloads.profiling` measures the tiny models on the CPU and rewrites their shipped profiles.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from ssfx.core import accelerator
from ssfx.core.case import Case, ClusterChoice, Precision
from ssfx.core.errors import ConfigError, RunError, SsfxError
from ssfx.core.machine import share_cores, steady_memory
from ssfx.core.origin import Origin
from ssfx.core.user_code import is_own
from ssfx.lab.results.manifest import busy_s, describe, hardware
from ssfx.lab.workloads.base import datasets, models
from ssfx.lab.workloads.checks import check_case
from ssfx.lab.workloads.clock import Clock, Mark
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.lab.workloads.step import forward_in, make_optimizer, set_precision
from ssfx.perf_model.shipped_profiles import shipped_dir
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile


@dataclass(frozen=True)
class Passes:
    """The iterations of one rank: data set and model are the case's, one thread computes."""

    case: Case
    iterations: int
    warmup: int


@dataclass(frozen=True)
class Iteration:
    """Seconds of one iteration by part; `ready_s` holds, from the start of backward, when each gradient was ready.

    It begins where gradients have been exchanged: with the optimizer's step, at `began_s` by this machine's clock.
    `other_s` is loading the batch and clearing the gradients, `ready_s[END]` the whole backward pass.
    """

    began_s: float
    step_s: float
    other_s: float
    forward_s: float
    ready_s: dict[str, float]

    @property
    def whole_s(self) -> float:
        """All of it: from one exchange to the next."""
        return self.step_s + self.other_s + self.forward_s + self.ready_s[END]


def since_first(ranks: Sequence[Iteration]) -> list[Iteration]:
    """Return one iteration of all ranks as if each had begun with the first of them.

    All had met. Who goes on later was kept waiting by a rank that it shares its core with, which is part of what the
    optimizer's step takes there.
    """
    first_s = min(one.began_s for one in ranks)
    return [replace(one, began_s=first_s, step_s=one.step_s + one.began_s - first_s) for one in ranks]


END = ""
"""Stands for the end of backward among parameter names."""


@dataclass(frozen=True)
class Timed:
    """What one rank measured, warm-up left out; over the whole time it computed for `own_s` of `wall_s` seconds and
    all cores of the machine together were busy for `machine_s`.
    """

    iterations: tuple[Iteration, ...]
    wall_s: float
    own_s: float
    machine_s: float


def run_passes(passes: Passes) -> tuple[Timed, ...]:
    """Return what each of `case.world_size` ranks measured; they meet between backward and step, as in an exchange.

    On CUDA each rank has a GPU of its own. RunError when a process dies.
    """
    if passes.case.world_size == 1:
        return (_measure(passes, 0, lambda: None),)
    context = multiprocessing.get_context("spawn")
    ranks = passes.case.world_size
    with (
        patch.dict(os.environ, steady_memory()),
        ProcessPoolExecutor(ranks, context, _share, (context.Barrier(ranks), os.getpid())) as pool,
    ):
        return _results([pool.submit(_together, passes, rank) for rank in range(ranks)])


def _results(ranks: list[Future[Timed]]) -> tuple[Timed, ...]:
    errors = [error for error in (rank.exception() for rank in ranks) if error]
    if not errors:
        return tuple(rank.result() for rank in ranks)
    # A rank that fails breaks the barrier for the others; its own error is the one to tell.
    first = next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    if isinstance(first, BrokenProcessPool):
        raise RunError(f"one of {len(ranks)} profiling processes died; there may be too little memory for them")
    raise first


_LAUNCHER_LOOK_S = 0.5
_barrier: Any = None


def _share(barrier: Any, launcher: int) -> None:
    """Make the barrier known in this process, and end it when the launcher is gone for any reason."""
    global _barrier
    _barrier = barrier

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_LAUNCHER_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()


def _together(passes: Passes, rank: int) -> Timed:
    if passes.case.device == "cpu":
        share_cores(rank, passes.case.world_size)
    try:
        return _measure(passes, rank, _barrier.wait)
    except BaseException:
        _barrier.abort()
        raise


def _measure(passes: Passes, rank: int, meet: Callable[[], Any]) -> Timed:
    case = passes.case
    threads = torch.get_num_threads()
    torch.set_num_threads(case.threads)
    try:
        device = torch.device("cpu") if case.device == "cpu" else torch.device(case.device, rank)
        set_precision(case.precision)
        torch.manual_seed(case.seed)
        model = models[case.model].build().to(device).train()
        batches = datasets.build(case.dataset).train_loader(
            rank, case.world_size, case.batch_size, case.seed, device=case.device, workers=case.data_workers
        )

        def load(number: int) -> list[torch.Tensor]:
            return [part.to(device) for part in batches[number]]

        def loss(batch: list[torch.Tensor]) -> torch.Tensor:
            with forward_in(case.precision, device):
                return cross_entropy(model, *batch)

        loop = Loop(model, make_optimizer(case, model), load, loss, device)
        meet()
        wall_s, machine_s, own_s = time.perf_counter(), busy_s(), time.process_time()
        timed = []
        for number in range(passes.warmup + passes.iterations):
            if case.world_size > 1:
                loop.move_gradients()
            meet()
            timed.append(loop.run(number))
        return Timed(
            tuple(timed[passes.warmup :]),
            time.perf_counter() - wall_s,
            time.process_time() - own_s,
            busy_s() - machine_s,
        )
    finally:
        torch.set_num_threads(threads)


@dataclass
class Loop:
    """Iterations of one model, each timed part by part: `loss` is that of what `load` returns for its number."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    load: Callable[[int], Any]
    loss: Callable[[Any], torch.Tensor]
    device: torch.device

    def __post_init__(self) -> None:
        self._clock = Clock(self.device)
        self._ready: dict[str, Mark] = {}
        self._spare: dict[nn.Parameter, torch.Tensor] = {}
        for name, parameter in trained(self.model).items():
            parameter.register_post_accumulate_grad_hook(self._note(name))

    def _note(self, name: str) -> Callable[[Any], None]:
        return lambda _parameter: self._ready.__setitem__(name, self._clock.mark())

    def move_gradients(self) -> None:
        """Every gradient has been copied to other memory and back, as an exchange does: the step finds nothing else."""
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                spare = self._spare.setdefault(parameter, torch.empty_like(parameter))
                spare.copy_(parameter.grad)
                parameter.grad.copy_(spare)

    def run(self, number: int) -> Iteration:
        """Do one iteration and return its times; the device has finished when this returns."""
        clock = self._clock
        self._ready.clear()
        began_s, began = time.perf_counter(), clock.mark()
        self.optimizer.step()
        other = clock.mark()
        self.optimizer.zero_grad()
        batch = self.load(number)
        forward = clock.mark()
        loss = self.loss(batch)
        backward = clock.mark()
        loss.backward()
        self._ready[END] = clock.mark()
        clock.wait()
        return Iteration(
            began_s,
            clock.seconds(began, other),
            clock.seconds(other, forward),
            clock.seconds(forward, backward),
            {name: clock.seconds(backward, mark) for name, mark in self._ready.items()},
        )


SHIPPED = {"resnet_tiny": ("digits", "sgd"), "lstm_tiny": ("stdlib_text", "sgd"), "gpt2_tiny": ("stdlib_text", "adamw")}
"""Models with a measured profile, and the data set and optimizer each was measured with."""

whole_s = attrgetter("whole_s")
_LR = 1e-4  # does not change the time of a step, and keeps weights where they began


def record_profile(
    model: str,
    dataset: str,
    batch_size: int,
    device: str,
    iterations: int = 20,
    warmup: int = 5,
    ranks: int = 1,
    optimizer: str = "sgd",
    precision: Precision = "fp32",
) -> Profile:
    """Return the profile of `model` on `device` (cpu or cuda), each time the median over iterations.

    `ranks` processes with one thread each compute at the same time, wait for each other where they would exchange
    gradients, and exchange none: a profile of a machine that they share, by the rank that is last in each iteration, as
    the others would have to wait for it. Tensors are in the order of their median ready times; one
    without a gradient comes last. Times are rounded to nanoseconds. ConfigError when the data set does not fit the
    model or the ranks do not fit the machine.
    """
    if device == "cuda" and accelerator.count(device) < ranks:
        raise ConfigError(f"ranks={ranks} needs as many GPUs and torch finds {accelerator.count(device)}; use fewer")
    case = Case(
        "profile",
        model,
        dataset,
        "ddp",
        ClusterChoice("local"),
        world_size=ranks,
        batch_size=batch_size,
        device="cuda" if device == "cuda" else "cpu",
        optimizer=optimizer,
        lr=_LR,
        precision=precision,
    )
    check_case(case)
    try:
        timed = run_passes(Passes(case, iterations, warmup))
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SsfxError) or not is_own(model):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(
            f"{model.partition('#')[0]} fails on a batch of {dataset.partition('(')[0]}: {reason}"
        ) from error
    return _profile(case, timed, f"median of {iterations} iterations after {warmup}")


def _profile(case: Case, timed: Sequence[Timed], method: str) -> Profile:
    together = [since_first(ranks) for ranks in zip(*(rank.iterations for rank in timed), strict=True)]
    every = [max(ranks, key=whole_s) for ranks in together]
    typical_s = median(iteration.whole_s for ranks in together for iteration in ranks)
    gpus = accelerator.names(case.device)[:1] * case.world_size
    who = "one process, one thread" if case.world_size == 1 else f"{case.world_size} processes of one thread each"
    busy_elsewhere = (timed[0].machine_s - sum(rank.own_s for rank in timed)) / timed[0].wall_s
    note = f"{method}, {who}, {max(0.0, busy_elsewhere):.1f} cores busy with other work; step: {case.optimizer}"
    return replace(
        profile_of(case, models[case.model].on_meta(), every, gpus, note),
        ranks=case.world_size,
        skew=round(median(map(whole_s, every)) / typical_s, 4),
        precision="" if case.precision == "fp32" else case.precision,
    )


def profile_of(case: Case, model: nn.Module, every: Sequence[Iteration], gpus: Sequence[str], note: str) -> Profile:
    """Return the profile of `model` whose times are the medians of iterations that were measured here."""
    backward_s = median(one.ready_s[END] for one in every)
    at = {name: median(one.ready_s.get(name, backward_s) for one in every) for name in trained(model)}
    order = sorted(at, key=lambda name: at[name])  # stable: ties keep the order of registration
    ready = [at[name] for name in order]
    hardware_text, today = describe({**hardware(), "gpus": gpus}), datetime.now(UTC).date().isoformat()
    return Profile(
        model=case.model,
        tensors=specs(model, order),
        ready_gap_s=tuple(round(later - earlier, 9) for earlier, later in pairwise([0.0, *ready])),
        forward_s=round(median(one.forward_s for one in every), 9),
        origin=Origin("measured", hardware_text, today, note, {"torch": torch.__version__}),
        batch_size=case.batch_size,
        device=case.device,
        step_s=round(median(one.step_s for one in every), 9),
        other_s=round(median(one.other_s for one in every), 9),
        optimizer=case.optimizer,
    )


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that get a gradient, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def specs(model: nn.Module, order: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return the trained tensors in an order."""
    found = trained(model)
    return tuple(
        TensorSpec(key, tuple(found[key].shape), str(found[key].dtype).removeprefix("torch.")) for key in order
    )


def main() -> None:
    """Measure every model of SHIPPED on the CPU and write its profile into the package."""
    for name, (dataset, optimizer) in SHIPPED.items():
        profile = record_profile(name, dataset, models[name].batch_size, "cpu", optimizer=optimizer)
        path = shipped_dir() / f"{name}.json"
        profile.save(path)
        print(f"{path.name}: {len(profile.tensors)} tensors, backward {profile.backward_s * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
