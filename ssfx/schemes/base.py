"""What a scheme is: a planner, the defaults of its options, and what it declares about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from ssfx.costs import Costs
from ssfx.errors import ConfigError, unknown
from ssfx.plan import Plan
from ssfx.profile import Profile
from ssfx.registry import Registry


@dataclass(frozen=True, kw_only=True)
class SchemeOptions:
    """Options every scheme has: none."""


@dataclass(frozen=True, kw_only=True)
class DenseOptions(SchemeOptions):
    """Options of schemes that send every element: an additive 16-bit compressor, or none (null)."""

    compressor: str | None = None


@dataclass(frozen=True, kw_only=True)
class SparseOptions(SchemeOptions):
    """Options of schemes that select elements: the compressor spec and the kept fraction in (0, 1]."""

    compressor: str | None = "dgc"
    density: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise ValueError(f"density must be in (0, 1], got {self.density}")


Planner = Callable[[Profile, Costs, Any], Plan]


@dataclass(frozen=True)
class Scheme:
    """A registered scheme.

    `profiled` schemes need ready times and costs that only a running model has: the runtime first trains a few
    iterations with a dense plan, then asks for the real one.
    """

    name: str
    summary: str
    source: str
    planner: Planner
    defaults: SchemeOptions
    fusion_unit: str
    profiled: bool = False

    @property
    def dense(self) -> bool:
        """True when the scheme never leaves an element out."""
        return isinstance(self.defaults, DenseOptions)

    def options(self, given: dict[str, Any]) -> SchemeOptions:
        """Return the defaults with `given` applied; ConfigError for an unknown key, a wrong type or a bad value."""
        known = {f.name for f in fields(self.defaults)}
        hints = get_type_hints(type(self.defaults))
        for key, value in given.items():
            if key not in known:
                if self.dense and key == "density":
                    raise ConfigError(
                        f"scheme={self.name} sends every gradient dense, so density={value} would have no effect; "
                        "drop it or choose scheme=per_tensor"
                    )
                raise unknown(f"option of scheme {self.name}", key, known)
            if not _fits(value, hints[key]):
                raise ConfigError(f"option {key} of scheme {self.name} must be of type {hints[key]}, got {value!r}")
        try:
            return replace(self.defaults, **given)
        except ValueError as error:
            raise ConfigError(f"scheme {self.name}: {error}") from None


def _fits(value: Any, hint: Any) -> bool:
    from typing import Literal, get_args, get_origin

    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if args := get_args(hint):
        return any(_fits(value, arg) for arg in args)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


schemes: Registry[Scheme] = Registry("scheme", "ssfx.schemes")


def scheme(
    name: str,
    *,
    summary: str,
    source: str,
    defaults: SchemeOptions,
    fusion_unit: str,
    profiled: bool = False,
) -> Callable[[Planner], Planner]:
    """Register the decorated planner under `name`; stack the decorator to register variants with other defaults."""

    def decorate(planner: Planner) -> Planner:
        schemes.add(Scheme(name, summary, source, planner, defaults, fusion_unit, profiled))
        return planner

    return decorate
