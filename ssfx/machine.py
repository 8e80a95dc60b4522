"""What this machine has, found without torch: cores a process may use, memory, GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from ssfx.lazy import psutil


def cores() -> int:
    """Return the number of CPU cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the bytes of memory that are free for a new process."""
    return int(psutil.virtual_memory().available)


@cache
def gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that CUDA programs started here will see; empty without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return ()
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except subprocess.TimeoutExpired:
        return ()
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(names)
    count = 0 if visible.strip() in ("", "-1") else len(visible.split(","))
    return tuple(names[:count])


def description() -> str:
    """Return the machine in a few words: "2 cores, no GPU"."""
    found = gpus()
    gpu = f"{len(found)} {found[0]}" if found else "no GPU"
    return f"{cores()} core{'s' if cores() != 1 else ''}, {gpu}"
