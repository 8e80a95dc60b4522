"""What this machine has, found without torch: cores a process may use, memory, GPUs."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

from ssfx.core.lazy import psutil

_CPUS = Path("/sys/devices/system/cpu")

_shared_cores = 0
_STEADY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_threshold": 32 * 2**20, "trim_threshold": 2**40}.items()
)


def cores() -> int:
    """Return the number of CPU cores this process may run on, together with the other ranks if they share them."""
    if _shared_cores:
        return _shared_cores
    return len(own_cores()) or os.cpu_count() or 1


def own_cores() -> list[int]:
    """Return the numbers of the cores that this thread may run on; empty where the system does not say (macOS)."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_cores(rank: int, ranks: int) -> None:
    """This thread, and every one it starts from now on, stays on the part of the cores that belongs to `rank`.

    All `ranks` are on this machine. Left alone, threads move to any core that is free when they wake up, and which rank
    is alone on a core, and which is last, changes from step to step. Nothing changes where the parts would not be
    equally large for more ranks than cores, nor on a system that has no such thing.
    """
    global _shared_cores
    count = len(own_cores())
    if not count or (ranks > count and ranks % count):
        return
    os.sched_setaffinity(0, core_shares(ranks)[rank])
    _shared_cores = count


def core_shares(parts: int) -> list[list[int]]:
    """Return the numbers of this thread's cores in `parts` parts, neighbours together; one core in each at least.

    No two parts share a core unless there are more parts than cores.
    """
    usable = sorted(own_cores(), key=_neighbourhood)
    firsts = [part * len(usable) // parts for part in range(parts + 1)]
    return [usable[first : max(first + 1, end)] for first, end in pairwise(firsts)]


def _neighbourhood(cpu: int) -> tuple[int, ...]:
    """Order CPUs so that those of a core, and cores of a package, are next to each other."""
    topology = _CPUS / f"cpu{cpu}" / "topology"
    try:
        return (*(int((topology / name).read_text()) for name in ("physical_package_id", "core_id")), cpu)
    except OSError:  # not every virtual machine says
        return (0, 0, cpu)


def steady_memory() -> dict[str, str]:
    """Return what a process needs in its environment so that where its memory lies does not change its speed.

    glibc then asks for pages of 2 MiB. From pages of 4 KiB, wherever there are free ones, weights that just fit into a
    cache push each other out of it or do not, from one start of a program to the next: an LSTM's forward pass, which
    reads the same weights at every position, is slow or is not. And it keeps what was freed, as
    GPUs' allocators do: by its own thresholds, which move with what a program happens to free, the activations of every
    step are either there or given back after backward and cleared anew in forward. What the user has set stays.
    """
    return {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _STEADY)}


def release_freed() -> None:
    """What this process freed is the operating system's again, as far as glibc can tell; other C libraries decide.

    glibc keeps blocks below a threshold that grows with the blocks a program frees, up to 32 MiB: a whole gradient copy
    of buckets that a new plan no longer needs would stay with the process in addition to the new ones.
    """
    import ctypes

    with suppress(AttributeError, OSError, TypeError):  # no malloc_trim here
        ctypes.CDLL(None).malloc_trim(0)


def memory_bytes() -> int:
    """Return the bytes of memory that are free for a new process."""
    return int(psutil.virtual_memory().available)


@cache
def gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that CUDA programs started here will see; empty without nvidia-smi."""
    # Imported here: most commands never look for GPUs.
    import shutil
    import subprocess

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
    return tuple(names if visible is None else names[: len(_listed(visible))])


def visible_gpus() -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs of `gpus`, one by one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(map(str, range(len(gpus())))) if visible is None else _listed(visible)


def _listed(visible: str) -> tuple[str, ...]:
    return () if visible.strip() in ("", "-1") else tuple(visible.split(","))


def description() -> str:
    """Return the machine in a few words: "2 cores, no GPU"."""
    found = gpus()
    gpu = f"{len(found)} {found[0]}" if found else "no GPU"
    return f"{cores()} core{'s' if cores() != 1 else ''}, {gpu}"
