"""The manifest: what a row was obtained with. It names neither host nor user nor any path, so rows can be published."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import ssfx
from ssfx.core.lazy import psutil
from ssfx.core.machine import cores

PACKAGES = ("torch", "numpy", "numba", "torchvision", "transformers", "datasets", "scikit-learn")


def now() -> str:
    """Return the current time, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def code() -> dict[str, Any]:
    """Return version, commit and dirty flag of the running ssfx; commit is None outside a git checkout."""
    checkout = Path(ssfx.__file__).parent.parent
    found: dict[str, Any] = {"version": ssfx.__version__, "commit": None, "dirty": None}
    if (checkout / ".git").exists():
        found["commit"] = _git(checkout, "rev-parse", "HEAD")
        # Results and untracked notes cannot change a run; changed tracked files and new modules of the package can.
        found["dirty"] = changed("ssfx", "conf", "pyproject.toml", new="all")
    return found


def changed(*paths: str, new: Literal["all", "no"] = "no") -> bool | None:
    """Return whether files of the checkout below `paths` are changed, with `new` others, too; None where unknown.

    None outside a git checkout.
    """
    checkout = Path(ssfx.__file__).parent.parent
    if not (checkout / ".git").exists():
        return None
    status = _git(checkout, "status", "--porcelain", f"--untracked-files={new}", "--", *paths)
    return None if status is None else bool(status)


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, the operating system's kernel and the packages that can change a number.

    Of the kernel, what its authors call it: the name of a site's own build is private.
    """
    from importlib import metadata  # costs more than the rest of this file, and only a finished run needs it

    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def hardware() -> dict[str, Any]:
    """Return CPU model, usable cores and memory in bytes of this machine; GPUs are added by whoever uses them."""
    return {"cpu": _cpu_model(), "cores": cores(), "memory_bytes": psutil.virtual_memory().total}


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe(machine: Mapping[str, Any]) -> str:
    """Return hardware as one line, the text of Origin.hardware."""
    gpus = machine.get("gpus") or []
    if gpus:
        return f"{len(gpus)} x {gpus[0]}, {machine['cpu']}, {machine['cores']} cores"
    return f"{machine['cpu']}, {machine['cores']} cores"


def busy_s() -> float:
    """Return the seconds all cores together were busy since boot, with any process; differences are what counts."""
    times = psutil.cpu_times()
    idle_or_twice = ("idle", "iowait", "guest", "guest_nice")  # Linux counts guest time as user time as well
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in idle_or_twice))
