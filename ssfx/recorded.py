"""Measured Systems and profiles: what the `ssfx profile` commands have left, here or in the package.

A System is in two files: one of the cluster, with what its exchanges take, and one of the machine, with what
compressors and the runtime take when so many ranks share it. The latter serves all emulated clusters of as many ranks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssfx.paths import data_dir, results_dir
from ssfx.profile import Profile
from ssfx.system import System

COMPRESSORS = "compressors"


def file_name(name: str, world_size: int) -> str:
    """Return the name of the file of a cluster, or of `COMPRESSORS`, for so many ranks."""
    return f"{name}-x{world_size}.json"


def points_name(name: str, world_size: int) -> str:
    """Return the name of the file of single measurements beside it, from which a System can be made again."""
    return f"{name}-x{world_size}-points.json"


def written_dir() -> Path:
    """Directory that measurements are written to."""
    return results_dir() / "profiles"


def shipped_dir() -> Path:
    """Directory of the measurements that come with the package."""
    return data_dir() / "systems"


def recorded_system(name: str, world_size: int) -> System | None:
    """Return what was measured of cluster `name` with so many ranks: on this machine, else what is shipped, else None.

    Both parts come from one place. Without a file of compressors there, the System has no times for any, and asking it
    for one is a ConfigError that names the command which measures it.
    """
    for folder in (written_dir(), shipped_dir()):
        network = folder / file_name(name, world_size)
        if network.exists():
            return joined(network, folder / file_name(COMPRESSORS, world_size))
    return None


def recorded_profile(model: str, device: str, ranks: int) -> Profile | None:
    """Return what `ssfx profile model=...` measured with so many ranks at once: here, else shipped, else None."""
    for folder in (written_dir(), shipped_dir()):
        path = folder / f"{model}-{device}-x{ranks}.json"
        if path.exists():
            return Profile.from_json(path.read_text())
    return None


def joined(network: Path, compressors: Path) -> System:
    """Return the System of a file of exchanges and, if it exists, one of compressors."""
    system = System.from_json(network.read_text())
    if not compressors.exists():
        return system
    rank = System.from_json(compressors.read_text())
    return replace(system, codecs=rank.codecs, overheads=rank.overheads)
