"""A profile whose iteration lasts as long as somebody measured: its shape is kept, its times are scaled."""

from __future__ import annotations

from dataclasses import replace

from ssfx.core.spec import Spec
from ssfx.planning.profile import Profile


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
    note = f"{profile.origin.note}; times scaled by {factor:.3g} to the iteration_ms={iteration_ms:g} that was given"
    return replace(
        profile,
        forward_s=factor * profile.forward_s,
        ready_gap_s=tuple(factor * gap_s for gap_s in profile.ready_gap_s),
        step_s=factor * profile.step_s,
        other_s=factor * profile.other_s,
        origin=replace(profile.origin, note=note.removeprefix("; ")),
    )
