"""Which density a step has while a sparse scheme warms up: dense at first, in equal ratios down to its own.

Source: Lin et al. 2018, section 3.3 (D-21).
"""

from __future__ import annotations

from typing import Any

from ssfx.compressors import warmup_density
from ssfx.schemes.online_planning import OnlinePlanning

STAGES = 4
"""Densities before the final one, as many as the paper's epochs of warm-up."""


def given_at(step: int, given: dict[str, Any], online: OnlinePlanning) -> dict[str, Any]:
    """Return the options to plan with at `step`: `given`, with the density of its stage of a warm-up if any.

    Each stage lasts a STAGES-th of the warm-up; at density 0.001 they have 25, 6.3, 1.6 and 0.4 %.
    """
    steps = online.density_warmup_steps
    if step >= steps or online.density is None:
        return given
    return {**given, "density": warmup_density(step * STAGES // steps, online.density, STAGES), "density_warmup": 0}
