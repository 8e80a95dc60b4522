"""A stand-in for `ssfx.attach`: a single rank whose "exchange" keeps a residual, so that there is state to lose."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ssfx.core.case import Case
from ssfx.lab.workloads.step import NoExchange
from ssfx.runtime.stats import Tracer

WORKLOADS = {"resnet_tiny": "digits", "lstm_tiny": "stdlib_text", "gpt2_tiny": "stdlib_text(seq_len=32)"}


def make_case(**changes: Any) -> Case:
    chosen: dict[str, Any] = {
        "experiment": "test",
        "model": "resnet_tiny",
        "dataset": "digits",
        "scheme": "ddp",
        "cluster": "local",
        "world_size": 1,
        "batch_size": 4,
        "steps": 4,
        "warmup_steps": 0,
    }
    return Case(**(chosen | changes))


@dataclass(frozen=True)
class Stats(NoExchange):
    sparsify_s: float = 1e-6
    contributed_bytes: float = 12.0
    sent_bytes: float = 24.0
    achieved_density: float = 0.5


class FakeSync:
    """Sends half of every gradient in one step and the rest with the next: `.grad` becomes (grad + residual) / 2."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        self.options = options
        self.last: Stats | None = None
        self.exchanges = self.local_backwards = 0
        self.detached = False
        self.tracer = Tracer(True, 0)
        self.nan_steps: set[int] = set()
        self._enabled = True
        self._params = dict(model.named_parameters())
        self.residual = {name: torch.zeros_like(p) for name, p in self._params.items()}
        for name, parameter in self._params.items():
            parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._arrive(name, p))

    def _arrive(self, name: str, parameter: torch.Tensor) -> None:
        first = next(iter(self._params))
        if not self._enabled:
            self.local_backwards += name == first
            return
        assert parameter.grad is not None
        sent = (parameter.grad + self.residual[name]) / 2
        skipped = self.exchanges in self.nan_steps
        if not skipped:
            self.residual[name] = sent.clone()
        if name == first:
            self.exchanges += 1
            self.last = Stats(skipped=skipped)
        parameter.grad = None if skipped else sent

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        self._enabled = False
        yield
        self._enabled = True

    def stats(self) -> dict[str, Any]:
        return {"residual_norm": 0.5, "threshold": 0.25}

    def state_dict(self) -> dict[str, Any]:
        return {"residual": {name: value.clone() for name, value in self.residual.items()}, "steps": self.exchanges}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual, self.exchanges = dict(state["residual"]), state["steps"]

    def detach(self) -> None:
        self.detached = True


class Recorder:
    """An `attach` that keeps what it made, and a list of records."""

    def __init__(self, nan_steps: set[int] | None = None) -> None:
        self.records: list[Any] = []
        self._nan_steps = nan_steps or set()

    def __call__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> FakeSync:
        self.model, self.optimizer = model, optimizer
        self.sync = FakeSync(model, optimizer, **options)
        self.sync.nan_steps = self._nan_steps
        return self.sync
