"""The profiles that come with the package: measured ones as files, analytic ones from counted operators."""

from pathlib import Path

from ssfx.core.errors import ConfigError
from ssfx.core.files import read
from ssfx.core.paths import data_dir
from ssfx.perf_model.operator_counts import NOT_COUNTED, counted, is_counted, model_work, work_dir
from ssfx.perf_model.roofline import analytic_profile
from ssfx.perf_model.saved_profiles import is_saved, saved_profile
from ssfx.planning.profile import Profile


def shipped_dir() -> Path:
    """Directory of the profiles that come with the package."""
    return data_dir() / "profiles"


def is_shipped(model: str) -> bool:
    """Return whether `load_shipped` has a profile of `model`."""
    return is_saved(model) or any((folder / f"{model}.json").exists() for folder in (shipped_dir(), work_dir()))


def load_shipped(model: str) -> Profile:
    """Return the shipped profile of `model`: the measured one if there is one, else the analytic one.

    The latter is of an A100 at the customary batch size. ConfigError names the models that have one.
    `profile_on` chooses for a device.
    """
    if is_saved(model):
        return saved_profile(model)
    if found := measured_profile(model):
        return found
    if not (is_counted(model) or model in NOT_COUNTED):  # of which `model_work` says why
        have = ", ".join(sorted({*counted(), *(path.stem for path in shipped_dir().glob("*.json"))})) or "none"
        raise ConfigError(f"no profile is shipped for model {model!r}; shipped: {have}")
    return analytic_profile(model)


def measured_profile(model: str) -> Profile | None:
    """Return the shipped profile of `model` that was measured, or None when there is none."""
    path = shipped_dir() / f"{model}.json"
    if not path.exists():
        return None
    found = read(path, Profile.from_json)
    return found if found.origin.kind == "measured" else None


def profile_on(
    model: str,
    on: str,
    batch_size: int | None = None,
    precision: str = "fp32",
    optimizer: str | None = None,
    host_s: float | None = None,
) -> Profile:
    """Return the shipped measured profile of `model` if it is of this device, batch size and optimizer, else analytic.

    Measured ones are of fp32. `host_s`: seconds in which the host issues a kernel; None: as the device's sheet says.
    """
    found = measured_profile(model) if precision == "fp32" else None
    if (
        found
        and found.device == on
        and batch_size in (None, found.batch_size)
        and (optimizer in (None, optimizer_of(found)))
    ):
        return found
    return analytic_profile(model, on, batch_size, precision, optimizer=optimizer, host_s=host_s)


def optimizer_of(profile: Profile) -> str:
    """Return the optimizer whose step `profile` timed; older files timed the model's customary one."""
    if profile.optimizer:
        return profile.optimizer
    return model_work(profile.model).optimizer if is_counted(profile.model) else "sgd"
