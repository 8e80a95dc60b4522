"""Profiles that a user saved, and traces of torch.profiler: a file stands wherever the name of a model may.

A profile may be scaled to an iteration that somebody measured: its shape is kept.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

from ssfx.core.errors import ConfigError
from ssfx.core.files import read
from ssfx.core.origin import BEWARE
from ssfx.core.plausible import plausible
from ssfx.core.plugins import provided
from ssfx.core.spec import Spec
from ssfx.perf_model.roofline import STEP_TRAFFIC
from ssfx.planning.profile import Profile

_HEAD_BYTES = 2**20


def is_saved(model: str) -> bool:
    """Return whether `model` is the file of a profile or of a trace, not the name of a model."""
    return model.endswith((".json", ".json.gz"))


def saved_profile(
    model: str,
    on: str | None = None,
    batch_size: int | None = None,
    optimizer: str | None = None,
    precision: str = "fp32",
    host_us: float | None = None,
) -> Profile:
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
        profile_of_trace = provided("ssfx.hooks", "profile_of_trace")
        if profile_of_trace is None:
            raise ConfigError(f"{path} is a trace, which the harness of ssfx reads, and this installation has none")
        found: Profile = profile_of_trace(path)
        return found
    return read(path, Profile.from_json, what="no profile that can be read: make it again", error=ConfigError)


MOST_FASTER, SLOWER = 25, 100
"""Times as fast as its profile that an iteration may be, 16 bits in place of 32 and all that is assumed included; and
times as slow from which on that is said."""


def given_time(model: str) -> tuple[str, float | None]:
    """Return the model in "resnet50(iteration_ms=253)" and the milliseconds; None of a model without such a time."""
    if not model.endswith(")"):
        return model, None
    spec = Spec.parse(model, "model")
    iteration_ms = spec.options.get("iteration_ms")
    return (spec.name, float(iteration_ms)) if iteration_ms else (model, None)


def lasting(profile: Profile, iteration_ms: float) -> Profile:
    """Return `profile` with all its times scaled so that an iteration on one device takes `iteration_ms`.

    The origin names the time that was given and the factor.
    """
    factor = 1e-3 * iteration_ms / profile.alone_s()
    if factor < 1 / MOST_FASTER:
        seconds = f"; if it is in seconds, write {1e3 * iteration_ms:g}" if 1e3 * factor < SLOWER else ""
        raise ConfigError(
            f"iteration_ms={iteration_ms:g} is {1 / factor:,.0f} times faster than the {1e3 * profile.alone_s():.4g} "
            f"ms that {profile.model} takes on {profile.device} by its profile{seconds}"
        )
    note = f"{profile.origin.note}; times scaled by {factor:.3g} to the iteration_ms={iteration_ms:g} that was given"
    if factor > SLOWER:
        note += f"; {BEWARE}iteration_ms={iteration_ms:g} is {factor:,.0f} times what the profile has"
    return replace(
        profile,
        forward_s=factor * profile.forward_s,
        ready_gap_s=tuple(factor * gap_s for gap_s in profile.ready_gap_s),
        step_s=factor * profile.step_s,
        other_s=factor * profile.other_s,
        origin=replace(profile.origin, note=note.removeprefix("; ")),
    )
