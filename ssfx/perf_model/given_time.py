"""A profile whose iteration lasts as long as somebody measured: its shape is kept, its times are scaled."""

from dataclasses import replace

from ssfx.core.errors import ConfigError
from ssfx.core.origin import BEWARE
from ssfx.core.spec import Spec
from ssfx.planning.profile import Profile

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
