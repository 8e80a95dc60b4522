"""An own model beside one of ssfx with the same tensors: in what their steps alone differ."""

import re
from collections import Counter

from ssfx.core.user_code import is_own
from ssfx.perf_model.devices import has_sheet
from ssfx.perf_model.operator_counts import ModelWork, counted, model_work
from ssfx.perf_model.roofline import counted_profile
from ssfx.planning.profile import Profile

Shape = tuple[int, ...]
SAME = 0.9
"""Share of the tensors that have the shapes of another model's, from which on it is one model."""
APART = 0.05
"""Difference of their steps alone from which on a word is said."""


def alike(profile: Profile) -> str:
    """Return what tells the step of an own model from that of a model of ssfx with its shapes; "" where nothing does.

    Both are counted for one device, batch, optimizer and precision: that of the own model's autocast, if it has one.
    """
    if not is_own(profile.model) or not has_sheet(profile.device) or not profile.batch_size:
        return ""
    mine = _shapes(profile)
    near = {name: (mine & _shapes(model_work(name))).total() for name in counted()}
    name = max(near, key=lambda one: near[one])
    theirs = _shapes(model_work(name))
    if near[name] < SAME * max(mine.total(), theirs.total()):
        return ""
    inside = re.search(r"(bf16|fp16) where the model says so", profile.origin.note)
    precision = inside[1] if inside else profile.precision
    other = counted_profile(name, profile.device, profile.batch_size, profile.optimizer, precision)
    if abs(other.alone_s() / profile.alone_s() - 1) < APART:
        return ""
    parts = [
        f"{part} {1e3 * there:.1f} there, {1e3 * here:.1f} here ({(there - here) / other.alone_s():+.0%} of its step)"
        for part, there, here in (
            ("forward", other.forward_s, profile.forward_s),
            ("backward", other.backward_s, profile.backward_s),
            (f"step of {profile.optimizer}", other.step_s, profile.step_s),
        )
        if abs(there - here) > 0.01 * other.alone_s()
    ]
    return (
        f"model={name} has these tensors, and a step alone takes {1e3 * other.alone_s():.1f} ms there, "
        f"{1e3 * profile.alone_s():.1f} here: {'; '.join(parts)}"
    )


def _shapes(of: Profile | ModelWork) -> Counter[Shape]:
    return Counter(tuple(sorted(spec.shape)) for spec in of.tensors)
