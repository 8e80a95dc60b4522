"""Profiles that a user saved, and traces of torch.profiler: a file stands wherever the name of a model may."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from ssfx.core.errors import ConfigError
from ssfx.core.files import read
from ssfx.core.plausible import plausible
from ssfx.perf_model.roofline import STEP_TRAFFIC
from ssfx.planning.profile import Profile

_HEAD_BYTES = 2**20


def is_saved(model: str) -> bool:
    """Return whether `model` is the file of a profile or of a trace, not the name of a model."""
    return model.endswith((".json", ".json.gz"))


def saved_profile(
    model: str, on: str | None = None, batch_size: int | None = None, optimizer: str | None = None,
    precision: str = "fp32", host_us: float | None = None,
) -> Profile:  # fmt: skip
    """Return the profile in the file `model`; ConfigError for one that is missing, damaged, or of something else.

    `on` is the device of the cluster that it shall stand for, `batch_size` and `optimizer` those of a step (None: any).
    A profile that does not know its batch size is of the one that is asked for. Its precision is that of the script, or
    what it was counted in, unless another `precision` than fp32 is asked for. Its times have a host in them: `host_us`
    must be None.
    """
    if host_us is not None:
        raise ConfigError(f"cluster.host_us has no effect on profile={model}, whose times have a host in them; drop it")
    path = Path(model).expanduser()
    if not path.is_file():
        raise ConfigError(f"profile={model}: there is no file {path.resolve()}; ssfx profile writes one")
    found = _read(path, path.stat().st_mtime_ns)
    plausible("iteration_ms", 1e3 * found.alone_s(), f"profile={model}: an iteration")
    if precision != "fp32":
        found = found.at(precision, f"profile={model}")
    if on is not None:
        check_device(found, on, f"profile={model}")
    if batch_size is not None and found.batch_size not in (0, batch_size):
        raise ConfigError(
            f"profile={model} is of batch_size={found.batch_size}, not {batch_size}; drop batch_size, or make another"
        )
    if optimizer is not None and found.optimizer in STEP_TRAFFIC and found.optimizer != optimizer:
        raise ConfigError(
            f"profile={model} has the step of optimizer={found.optimizer}, not {optimizer}; drop optimizer, or make "
            "another"
        )
    return found if batch_size is None else replace(found, batch_size=batch_size)


def check_device(found: Profile, on: str, what: str) -> None:
    """Raise ConfigError unless the profile, called `what`, may stand for devices of kind `on`.

    What was measured on "cuda", on whichever GPU, is taken for the GPUs of any cluster: its owner knows them.
    """
    kind = found.device.partition(":")[0]
    if kind and kind != on and not (kind == "cuda" and on != "cpu"):
        raise ConfigError(
            f"{what} is of device {found.device}, and the cluster has {on} devices: choose another cluster, or make "
            f"the profile for this one with ssfx profile FILE.py:FUNCTION --on {on}"
        )


def _is_trace(path: Path) -> bool:
    """Return whether a file begins as torch.profiler writes a trace, whose other keys are short."""
    with path.open("rb") as file:
        return b'"traceEvents"' in file.read(_HEAD_BYTES)


@cache
def _read(path: Path, _changed_ns: int) -> Profile:
    if path.suffix == ".gz" or _is_trace(path):
        from ssfx.perf_model.profiler_trace import profile_of_trace  # late: few profiles are traces

        return profile_of_trace(path)
    return read(path, Profile.from_json, what="no profile that can be read: make it again", error=ConfigError)
