"""What the pool's ranks run on a device that exists only in bookkeeping."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from runtime.fake_device import FakeDevice
from runtime.models import parameters
from runtime.work import attached, train

from ssfx.kernels import plain_torch

Options = dict[str, Any]


def trained(group: Any, rank: int, world: int, options: Options, steps: int, removed: Collection[str] = ()) -> Any:
    """Train on the fake device; return races, lines that wait, and the parameters."""
    fake = FakeDevice(removed)
    with fake.training():
        model, optimizer, sync = attached("mlp", group, world, options)
        train(model, optimizer, rank, range(steps))
        sync.detach()
    found = {name: value.tolist() for name, value in parameters(model).items()}
    return fake.races, fake.places, found


def on_cpu(group: Any, rank: int, world: int, options: Options, steps: int) -> dict[str, Any]:
    """Train on the CPU by the plain-torch path; return the parameters."""
    with plain_torch():
        model, optimizer, sync = attached("mlp", group, world, options)
        train(model, optimizer, rank, range(steps))
        sync.detach()
    return {name: value.tolist() for name, value in parameters(model).items()}
