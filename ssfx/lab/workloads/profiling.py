"""Profiles measured on this machine: when each gradient of a model is ready, and what else an iteration takes.

`python -m ssfx.lab.workloads.profiling` measures the tiny models on the CPU and rewrites their shipped profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter
from statistics import median

import torch
from torch import nn

from ssfx.core import accelerator
from ssfx.core.case import Case, ClusterChoice, Precision
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.lab.results.manifest import describe, hardware
from ssfx.lab.workloads.base import models
from ssfx.lab.workloads.checks import check_case
from ssfx.lab.workloads.passes import END, Passes, Timed, run_passes, since_first
from ssfx.perf_model.shipped_profiles import shipped_dir
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

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
    if iterations < 1 or warmup < 0:
        raise ConfigError(f"profiling needs iterations >= 1 and warmup >= 0, got {iterations} and {warmup}")
    if ranks < 1:
        raise ConfigError(f"profiling needs ranks >= 1, got {ranks}")
    if device == "cuda" and accelerator.count(device) < ranks:
        raise ConfigError(f"ranks={ranks} needs as many GPUs and torch finds {accelerator.count(device)}; use fewer")
    case = Case(
        "profile", model, dataset, "ddp", ClusterChoice("local"), world_size=ranks, batch_size=batch_size,
        device="cuda" if device == "cuda" else "cpu", optimizer=optimizer, lr=_LR, precision=precision,
    )  # fmt: skip
    check_case(case)
    timed = run_passes(Passes(case, iterations, warmup))
    return _profile(case, timed, f"median of {iterations} iterations after {warmup}")


def _profile(case: Case, timed: Sequence[Timed], method: str) -> Profile:
    with torch.device("meta"):
        params = {name: p for name, p in models[case.model].build().named_parameters() if p.requires_grad}
    together = [since_first(ranks) for ranks in zip(*(rank.iterations for rank in timed), strict=True)]
    every = [max(ranks, key=whole_s) for ranks in together]
    typical_s = median(iteration.whole_s for ranks in together for iteration in ranks)
    backward_s = median(one.ready_s[END] for one in every)
    at = {name: median(one.ready_s.get(name, backward_s) for one in every) for name in params}
    order = sorted(params, key=lambda name: at[name])  # stable: ties keep the order of registration
    ready = [at[name] for name in order]
    gaps = [later - earlier for earlier, later in zip([0.0, *ready], ready, strict=False)]
    gpus = accelerator.names(case.device)[:1] * case.world_size
    who = "one process, one thread" if case.world_size == 1 else f"{case.world_size} processes of one thread each"
    busy_elsewhere = (timed[0].machine_s - sum(rank.own_s for rank in timed)) / timed[0].wall_s
    return Profile(
        model=case.model,
        tensors=tuple(_spec(name, params[name]) for name in order),
        ready_gap_s=tuple(round(gap, 9) for gap in gaps),
        forward_s=round(median(one.forward_s for one in every), 9),
        origin=Origin(
            "measured",
            hardware=describe({**hardware(), "gpus": gpus}),
            date=datetime.now(UTC).date().isoformat(),
            note=f"{method}, {who}, {max(0.0, busy_elsewhere):.1f} cores busy with other work; step: {case.optimizer}",
            versions={"torch": torch.__version__},
        ),
        batch_size=case.batch_size,
        device=case.device,
        ranks=case.world_size,
        skew=round(median(map(whole_s, every)) / typical_s, 4),
        step_s=round(median(one.step_s for one in every), 9),
        other_s=round(median(one.other_s for one in every), 9),
        optimizer=case.optimizer,
        precision="" if case.precision == "fp32" else case.precision,
    )


def _spec(name: str, parameter: nn.Parameter) -> TensorSpec:
    return TensorSpec(name, tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."))


def main() -> None:
    """Measure every model of SHIPPED on the CPU and write its profile into the package."""
    for name, (dataset, optimizer) in SHIPPED.items():
        profile = record_profile(name, dataset, models[name].batch_size, "cpu", optimizer=optimizer)
        path = shipped_dir() / f"{name}.json"
        profile.save(path)
        print(f"{path.name}: {len(profile.tensors)} tensors, backward {profile.backward_s * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
