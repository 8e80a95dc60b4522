"""Profiles measured on this machine: when each gradient is ready in a backward pass of one process on one thread.

`python -m ssfx.workloads.profiling` measures the tiny models on the CPU and rewrites their shipped profiles.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from statistics import median
from typing import Any

import torch
from torch import nn

from ssfx.errors import ConfigError
from ssfx.origin import Origin
from ssfx.plan import TensorSpec
from ssfx.profile import Profile, shipped_dir
from ssfx.results.manifest import busy_s, describe, hardware
from ssfx.workloads.base import datasets, models
from ssfx.workloads.checks import check_fit
from ssfx.workloads.clock import Clock, Mark
from ssfx.workloads.objective import cross_entropy

SHIPPED = {"resnet_tiny": "digits", "lstm_tiny": "stdlib_text", "gpt2_tiny": "stdlib_text"}
"""Models with a measured profile, and the data set each was measured on."""


def record_profile(
    model_name: str, dataset: str, batch_size: int, device: str, iterations: int = 20, warmup: int = 5
) -> Profile:
    """Return the profile of a model on `device`, each time the median over `iterations` after `warmup` passes.

    Tensors are in the order of their median ready times; one without a gradient comes last. Times are rounded to
    nanoseconds. One thread computes, as in a rank. Raises ConfigError when the data set does not fit the model.
    """
    data = datasets.build(dataset)
    check_fit(models[model_name], data)
    if iterations < 1 or warmup < 0:
        raise ConfigError(f"profiling needs iterations >= 1 and warmup >= 0, got {iterations} and {warmup}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _record(model_name, data.train_loader(0, 1, batch_size, 0), torch.device(device), iterations, warmup)
    finally:
        torch.set_num_threads(threads)


def _record(model_name: str, batches: Any, device: torch.device, iterations: int, warmup: int) -> Profile:
    torch.manual_seed(0)
    model = models[model_name].build().to(device).train()
    passes = [_Pass(model, Clock(device), *(t.to(device) for t in batches[i])) for i in range(warmup + iterations)]
    wall_s, machine_s, own_s = time.perf_counter(), busy_s(), time.process_time()
    measured = [one.run() for one in passes][warmup:]
    others = (busy_s() - machine_s - (time.process_time() - own_s)) / (time.perf_counter() - wall_s)
    backward_s = median(ready_s[_END] for _, ready_s in measured)
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}
    at = {name: median(ready_s.get(name, backward_s) for _, ready_s in measured) for name in params}
    order = sorted(params, key=lambda name: at[name])  # stable: ties keep the order of registration
    ready = [at[name] for name in order]
    gaps = [later - earlier for earlier, later in zip([0.0, *ready], ready, strict=False)]
    machine = {**hardware(), "gpus": [torch.cuda.get_device_name(device)] if device.type == "cuda" else []}
    return Profile(
        model=model_name,
        tensors=tuple(_spec(name, params[name]) for name in order),
        ready_gap_s=tuple(round(gap, 9) for gap in gaps),
        forward_s=round(median(forward_s for forward_s, _ in measured), 9),
        origin=Origin(
            "measured",
            hardware=describe(machine),
            date=datetime.now(UTC).date().isoformat(),
            note=(
                f"median of {iterations} iterations after {warmup}, one process, one thread, "
                f"{max(0.0, others):.1f} other cores busy meanwhile"
            ),
            versions={"torch": torch.__version__},
        ),
        batch_size=len(passes[0].inputs),
        device=device.type,
    )


def _spec(name: str, parameter: nn.Parameter) -> TensorSpec:
    return TensorSpec(name, tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."))


_END = ""
"""Stands for the end of backward among parameter names."""


class _Pass:
    """One forward and backward pass; `run` returns its forward time and when each gradient was ready in backward."""

    def __init__(self, model: nn.Module, clock: Clock, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.inputs = inputs
        self._model = model
        self._clock = clock
        self._targets = targets

    def run(self) -> tuple[float, dict[str, float]]:
        marks: dict[str, Mark] = {}

        def note(name: str) -> Any:
            return lambda _param: marks.__setitem__(name, self._clock.mark())

        handles = [
            p.register_post_accumulate_grad_hook(note(name))
            for name, p in self._model.named_parameters()
            if p.requires_grad
        ]
        self._model.zero_grad()
        began = self._clock.mark()
        loss = cross_entropy(self._model, self.inputs, self._targets)
        start = self._clock.mark()
        loss.backward()
        marks[_END] = self._clock.mark()
        self._clock.wait()
        for handle in handles:
            handle.remove()
        forward_s = self._clock.seconds(began, start)
        return forward_s, {name: self._clock.seconds(start, mark) for name, mark in marks.items()}


def main() -> None:
    """Measure every model of SHIPPED on the CPU and write its profile into the package."""
    for name, dataset in SHIPPED.items():
        profile = record_profile(name, dataset, models[name].batch_size, "cpu")
        path = shipped_dir() / f"{name}.json"
        path.write_text(profile.to_json() + "\n")
        print(f"{path.name}: {len(profile.tensors)} tensors, backward {profile.backward_s * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
