"""Which schemes and options the suites of the runtime go through: whatever is registered."""

from __future__ import annotations

from typing import Any

from plan.options import usual

from ssfx.schemes import schemes

Options = dict[str, Any]

DENSE = [s.name for s in schemes if s.dense]
SPARSE = [s.name for s in schemes if not s.dense]
BIASED = {"s2reducer", "signsgd"}
"""What these decode is not what was sent: an estimate from a sketch, a vote of signs."""


def of_scheme(scheme: str, world: int, density: float = 0.05) -> Options:
    """Return options for `attach` with which the scheme runs on `world` ranks."""
    options = {"scheme": scheme, **usual(scheme, density)}
    if scheme == "hierarchical":
        options["ranks_per_node"] = 2 if world % 2 == 0 else world
    if scheme == "parallax":
        options["tables"] = "*weight"
    return options


def profiled(options: Options) -> bool:
    """Return whether the scheme trains some iterations before it plans."""
    return schemes[options["scheme"]].profiled


def name(options: Options) -> str:
    return "-".join(f"{value}" for value in options.values())
