"""What the pool's ranks run on a device that exists only in bookkeeping."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from runtime.fake_device import FakeDevice
from runtime.models import parameters
from runtime.work import attached, train

from ssfx.compressors.kernels import plain_torch
from ssfx.runtime.online import Observer

Options = dict[str, Any]


@contextmanager
def equal_times() -> Iterator[None]:
    """All gradients are ready together by what is observed, so that a scheme plans alike each time it is run."""
    with mock.patch.object(Observer, "_since", return_value=1e-3):
        yield


def trained(
    group: Any, rank: int, world: int, options: Options, steps: int, removed: Collection[str] = (), kind: str = "mlp"
) -> Any:
    """Train on the fake device; return races, lines that wait on streams, the host's waits, and the parameters."""
    fake = FakeDevice(removed)
    with equal_times(), fake.training():
        model, optimizer, sync = attached(kind, group, world, options)
        train(model, optimizer, rank, range(steps), kind)
        sync.detach()
    found = {name: value.tolist() for name, value in parameters(model).items()}
    return fake.races, fake.places, fake.waits, found


def on_cpu(group: Any, rank: int, world: int, options: Options, steps: int, kind: str = "mlp") -> dict[str, Any]:
    """Train on the CPU by the plain-torch path; return the parameters."""
    with equal_times(), plain_torch():
        model, optimizer, sync = attached(kind, group, world, options)
        train(model, optimizer, rank, range(steps), kind)
        sync.detach()
    return {name: value.tolist() for name, value in parameters(model).items()}
