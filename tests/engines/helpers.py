"""Cases for the tests of the launcher, and a clock for what waits."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ssfx.core.case import Case
from ssfx.lab.worker.heartbeat import read_beat

HERE = Path(__file__).parent


def make_case(**changes) -> Case:
    fields = {
        "experiment": "launcher",
        "model": "fake",
        "dataset": "fake",
        "scheme": "ddp",
        "cluster": "local",
        "world_size": 2,
        "batch_size": 4,
        "steps": 6,
        "warmup_steps": 2,
    }
    return Case(**{**fields, **changes})


def fake_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks find the fake training function, and torchrun gets as long as it needs to notice a failure.

    On a busy machine that is longer than a user would wait.
    """
    monkeypatch.setattr("ssfx.lab.engines.launch.GRACE_S", 60.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])))


def hurry(monkeypatch: pytest.MonkeyPatch, hangs: Callable[[], bool]) -> None:
    """Once `hangs()`, the launcher's clock gains a hundred seconds a look: before that, nothing counts as hanging."""
    passed_s = 0.0

    def monotonic() -> float:
        nonlocal passed_s
        passed_s += 100.0 if hangs() else 0.0
        return time.monotonic() + passed_s

    monkeypatch.setattr("ssfx.lab.engines.launch.time", SimpleNamespace(sleep=time.sleep, monotonic=monotonic))


def phases(runs: Path, ranks: int, attempt: str = "attempt-1") -> list[tuple[int, str]]:
    """Return step and phase of every rank of the only run below `runs`; fewer until all have begun."""
    beats = [read_beat(folder, rank) for folder in runs.glob(f"*/{attempt}") for rank in range(ranks)]
    return [(beat.step, beat.phase) for beat in beats if beat is not None]
