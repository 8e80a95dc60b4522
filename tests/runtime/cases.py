"""Which schemes and options the suites of the runtime go through: whatever is registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from plan.instances import affine_costs
from plan.options import usual

from ssfx.planning.costs import Costs
from ssfx.schemes import schemes

Options = dict[str, Any]

DENSE = [s.name for s in schemes if s.dense and not s.in_rounds]
SPARSE = [s.name for s in schemes if not (s.dense or s.in_rounds)]
BIASED = {"s2reducer", "signsgd"}
"""What these decode is not what was sent: an estimate from a sketch, a vote of signs."""


# With default options these plan the small test models dense.
_COMPRESSES: dict[str, Options] = {
    "parallax": {"tables": "*weight"},
    **{f"ssfusion_{variant}": {"rule": "paper"} for variant in ("naive", "o", "i", "oi")},
}


def of_scheme(scheme: str, world: int, density: float = 0.05) -> Options:
    """Return options for `attach` with which the scheme runs on `world` ranks."""
    options = {"scheme": scheme, **usual(scheme, density)}
    options |= _COMPRESSES.get(scheme, {})
    if scheme in ("auto", "espresso", "hipress"):
        options["costs"] = slow_network(world)
    return options


def slow_network(world: int) -> Costs:
    """Return costs of a network so slow that compressing pays off for the small test models."""
    return affine_costs(world, beta=1e-5, encode=(1e-5, 0), decode=(1e-6, 0), host=(1e-5, 0))


def in_turn(names: str, *lists: Sequence[Any]) -> pytest.MarkDecorator:
    """Each value of the first list, with the values of the others in turn: all of them meet, not each with each.

    What holds for a scheme on two ranks and for its neighbour on three depends little on which of them has which.
    """
    return pytest.mark.parametrize(names, turns(*lists), ids=ident)


def turns(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return what `in_turn` goes through."""
    first, *others = lists
    return [(value, *(other[n % len(other)] for other in others)) for n, value in enumerate(first)]


def ident(value: Any) -> str:
    """Return what a test is called by."""
    if isinstance(value, tuple):
        return "-".join(map(ident, value))
    return name(value) if isinstance(value, dict) else str(value)


def profiled(options: Options) -> bool:
    """Return whether the scheme trains some iterations before it plans."""
    return schemes[options["scheme"]].profiled


def name(options: Options) -> str:
    return "-".join(f"{value}" for key, value in options.items() if key != "costs")


THOROUGH = ("per_tensor", "fused_all", "ssfusion_naive", "ssfusion_oi")


def sparse_cases() -> list[Options]:
    """Every sparse scheme; several compressors that keep a residual on some of them."""
    cases = [of_scheme(scheme, 2, density=0.05) for scheme in SPARSE]
    for scheme in THOROUGH:
        compressors = ["dgc", "gaussiank"]
        if not scheme.startswith("ssfusion"):
            compressors.append("randomk")
        cases += [{**of_scheme(scheme, 2), "compressor": c, "density": 0.05} for c in compressors]
    cases += [
        {"scheme": "per_tensor", "compressor": "topk(value_dtype=float16)", "density": 0.05},
        {"scheme": "fused_all", "compressor": "sidco", "density": 0.05},
        {"scheme": "fused_all", "compressor": "topk", "density": 0.05, "fusion_degree": 50},
        {**of_scheme("ssfusion_oi", 2), "memory": "momentum"},
    ]
    return cases


CASES = sparse_cases()
