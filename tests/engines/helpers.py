"""Cases and processes for the tests of the launcher."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from ssfx.core.case import Case

HERE = Path(__file__).parent


def make_case(**changes) -> Case:
    fields = {
        "experiment": "launcher", "model": "fake", "dataset": "fake", "scheme": "ddp", "cluster": "local",
        "world_size": 2, "batch_size": 4, "steps": 6, "warmup_steps": 2,
    }  # fmt: skip
    return Case(**{**fields, **changes})


def processes_of(root: Path) -> list[psutil.Process]:
    """Torchrun and rank processes of launches below `root`: their command lines name the batch file."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if f"{root}/runs" in line and "ssfx.runtime.worker" in line:
            found.append(process)
    return found


def wait_until(true, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
