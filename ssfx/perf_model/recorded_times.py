"""Measured timing models and profiles: what the `ssfx profile` commands have left, here or in the package.

A TimingModel is in two files: one of the cluster, with what its exchanges take, and one of the machine, with what
compressors and the runtime take when so many ranks share it. The latter serves all emulated clusters of as many ranks.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ssfx.core.files import read as read_file
from ssfx.core.origin import Origin
from ssfx.core.paths import data_dir, results_dir
from ssfx.perf_model.operator_counts import is_counted, model_work
from ssfx.perf_model.shipped_profiles import optimizer_of
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.profile import Profile

COMPRESSORS = "compressors"
T = TypeVar("T")


def file_name(name: str, world_size: int) -> str:
    """Return the name of the file of a cluster, or of `COMPRESSORS`, for so many ranks."""
    return f"{name}-x{world_size}.json"


def points_name(name: str, world_size: int) -> str:
    """Return the name of the file of the single measurements, from which a TimingModel can be made again."""
    return f"{name}-x{world_size}-points.json"


def profile_name(profile: Profile) -> str:
    """Return the name of a profile's file; it names batch size and optimizer where they are not the customary ones."""
    work = model_work(profile.model) if is_counted(profile.model) else None
    batch = "" if work and profile.batch_size == work.batch_size else f"-b{profile.batch_size}"
    step = "" if work and optimizer_of(profile) == work.optimizer else f"-{optimizer_of(profile)}"
    return f"{_stem(profile.model)}-{profile.device}-x{profile.ranks}{batch}{step}.json"


def _stem(model: str) -> str:
    """Return the name of a model as part of a file's: that of an own model holds a path."""
    return re.sub(r"[^\w.-]", "_", model)


def written_dir() -> Path:
    """Directory that measurements are written to."""
    return results_dir() / "profiles"


def shipped_dir() -> Path:
    """Directory of the measurements that come with the package."""
    return data_dir() / "systems"


def recorded_system(name: str, world_size: int, shipped: bool = False) -> TimingModel | None:
    """Return what was measured of cluster `name` with so many ranks: on this machine, else what is shipped, else None.

    Both parts come from one place; `shipped`: from the package, ignoring what was measured here. Without a file of
    compressors there, the model has no times for any, and asking it for one is a ConfigError that names the command
    which measures it.
    """
    for folder in _folders(shipped):
        network = folder / file_name(name, world_size)
        if network.exists():
            found = joined(network, folder / file_name(COMPRESSORS, world_size))
            return replace(found, origin=with_package(found.origin)) if folder == shipped_dir() else found
    return None


def recorded_profile(
    model: str,
    device: str,
    ranks: int,
    shipped: bool = False,
    batch_size: int | None = None,
    optimizer: str | None = None,
) -> Profile | None:
    """Return what `ssfx profile model=...` measured with so many ranks at once: here, else shipped, else None.

    `shipped`: from the package, ignoring what was measured here. A profile of another batch size or optimizer than
    these (None: any) is passed over; what a file holds counts, not its name.
    """
    for folder in _folders(shipped):
        stem = f"{_stem(model)}-{device}-x{ranks}"
        for path in (*folder.glob(f"{stem}.json"), *sorted(folder.glob(f"{stem}-*.json"))):
            found = read(path, Profile.from_json)
            if batch_size in (None, found.batch_size) and optimizer in (None, optimizer_of(found)):
                return replace(found, origin=with_package(found.origin)) if folder == shipped_dir() else found
    return None


def with_package(origin: Origin) -> Origin:
    """Return the origin of a measurement that comes with the package, which says so."""
    return replace(origin, note="; ".join(filter(None, (origin.note, "shipped with ssfx"))))


def measured_on(origin: Origin) -> str:
    """Return " on" what machine and when something was measured, "" where it was computed or quoted."""
    machine = ", ".join(filter(None, (origin.hardware, origin.date)))
    return f" on {machine}" if machine and origin.kind in ("measured", "emulated") else ""


def _folders(shipped: bool) -> tuple[Path, ...]:
    return (shipped_dir(),) if shipped else (written_dir(), shipped_dir())


def joined(network: Path, compressors: Path) -> TimingModel:
    """Return the model of a file of exchanges and, if it exists, one of compressors."""
    system = read(network, TimingModel.from_json)
    if not compressors.exists():
        return system
    rank = read(compressors, TimingModel.from_json)
    return replace(system, codecs=rank.codecs, overheads=rank.overheads)


def read(path: Path, from_json: Callable[[str], T]) -> T:
    """Return what a file of measurements holds; RunError for one that is damaged or of another version of ssfx."""
    return read_file(path, from_json, what="no measurement that can be read: measure again, or delete it")
