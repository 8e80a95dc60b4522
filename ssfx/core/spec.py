"""Spec: "name" or "name(option=value,...)", the text by which plans, rows and users refer to a component or cluster.

Components with options are registered as classes with defaults, and built from specs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from shlex import quote
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from ssfx.core.errors import ConfigError, plain, unknown
from ssfx.core.numbers import numeric
from ssfx.core.registry import Registry

_SPEC = re.compile(r"\s*(?P<name>[^\s()]+|[^()]*[/.][^()]*?)\s*(?:\((?P<options>[^()]*)\)\s*)?")


@dataclass(frozen=True)
class Spec:
    """A name, which may be the path of a file, and options in the order written; parsed ones are text."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: object, kind: str = "component") -> Spec:
        """Return what `text` spells; ConfigError, one line that calls it a `kind`, for a text that is no spec."""
        match = _SPEC.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(f"{text!r} is not a {kind}; write a name, or name(option=value)")
        options: dict[str, str] = {}
        inside = (match["options"] or "").strip()
        for part in inside.split(",") if inside else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (key and equals and value):
                number, part = numeric(part.strip()), part.strip()
                how = f"; options are written name(option=value){f', as rank={part}' if part.isdecimal() else ''}"
                if isinstance(number, float):
                    how = f"; a density stands beside it: density={part}"
                elif kind == "scheme" and number == part:
                    how += f", and a compressor beside it: {kind}={match['name']} compressor={part}"
                raise ConfigError(f"{text!r}: {part!r} is not option=value{how}")
            if key in options:
                raise ConfigError(f"{text!r} gives option {key} twice; keep one of them")
            options[key] = value
        return cls(match["name"], options)

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name


@lru_cache(maxsize=1 << 12)
def name_of(spec: str) -> str:
    """Return the name in a spec, without its options."""
    return spec.partition("(")[0].strip()


@dataclass(frozen=True)
class NoOptions:
    """Options of a component that has none."""


class Bounded:
    """Options whose values lie where their types say; ValueError for another. None lies everywhere.

    `Annotated[int, 1]`: at least 1. `Annotated[float, "(0, 1]"]`: in that interval. `Annotated[str, WORDS]`, Literal:
    one of these.
    """

    def __post_init__(self) -> None:
        options: Any = type(self)
        for name, bound in _bounds(options).items():
            value = getattr(self, name)
            if value is not None and (wanted := _outside(value, bound)):
                raise ValueError(f"{name} must {wanted}, got {f'{value:g}' if isinstance(value, float) else value}")


@cache
def _bounds(options: type[Any]) -> dict[str, Any]:
    """Return the bound of every field that has one in its type, or in the type that a base class gives it."""
    found: dict[str, Any] = {}
    for cls in options.__mro__:
        for name, hint in get_type_hints(cls, include_extras=True).items():
            for one in (hint, *get_args(hint)):  # a Literal may stand in a union
                if get_origin(one) in (Annotated, Literal):
                    found.setdefault(name, get_args(one)[1] if get_origin(one) is Annotated else get_args(one))
    return found


def _outside(value: Any, bound: Any) -> str:
    """Return what a value must be, "" if it is."""
    if isinstance(bound, str):
        low, high = (float(end) for end in bound[1:-1].split(","))
        inside = (low <= value if bound[0] == "[" else low < value) and (
            value <= high if bound[-1] == "]" else value < high
        )
        return "" if inside else "be positive" if bound == "(0, inf)" else f"be in {bound}"
    if isinstance(bound, int):
        return "" if value >= bound else f"be at least {bound}" if bound else "not be negative"
    words = [*map(str, bound)]
    return "" if value in bound else f"be {' or '.join(words) if len(words) < 3 else 'one of ' + ', '.join(words)}"


C = TypeVar("C")


@dataclass(frozen=True)
class Registered(Generic[C]):
    """A registered class with the defaults of its options; its constructor takes one options object."""

    cls: type[C]
    options: Any

    @property
    def name(self) -> str:
        """Name used in specs."""
        return self.cls.name  # type: ignore[attr-defined, no-any-return]

    @property
    def summary(self) -> str:
        """One line for `ssfx list`."""
        return self.cls.summary  # type: ignore[attr-defined, no-any-return]


_DENSITY = ("k", "ratio", "density", "sparsity", "percent")
_SYNONYMS = {"r": "rank", "q_level": "bits", "bit": "bits", "num_bits": "bits", "bucket_size": "bucket"}


def no_option(owner: str, key: str, value: object, options: Iterable[str]) -> ConfigError:
    """Return the error for an option that a component has not: the density of a compressor is a key of its own."""
    fraction = numeric(value)
    kept = f"{fraction:g}" if isinstance(fraction, float) and 0 < fraction <= 1 else "0.01 for 1 %"
    return unknown(
        f"option of {owner}", key, options, dict.fromkeys(_DENSITY, f"density={kept}, a key of its own") | _SYNONYMS
    )


class Catalog(Registry[Registered[C]]):
    """A registry whose components are built from specs."""

    def __init__(self, kind: str, package: str, others: Mapping[str, str] = {}, nearest_of: str = "") -> None:
        super().__init__(kind, package, others=others, nearest_of=nearest_of)
        self._built: dict[tuple[str, Any], C] = {}
        self._by_spec: dict[str, C] = {}

    def register(self, options: Any = NoOptions()) -> Callable[[type[C]], type[C]]:
        """Register the decorated class with `options`, a frozen dataclass instance holding the defaults."""

        def decorate(cls: type[C]) -> type[C]:
            self.add(Registered(cls, options))
            return cls

        return decorate

    def build(self, spec: str) -> C:
        """Return the component of a spec; specs that mean the same share one instance. ConfigError if it has none."""
        if spec not in self._by_spec:  # planners ask for the same spec thousands of times
            entry, options = self._resolve(spec, {})
            key = (entry.name, options)
            if key not in self._built:
                self._built[key] = self._made(entry, options)
            self._by_spec[spec] = self._built[key]
        return self._by_spec[spec]

    def __getitem__(self, name: str) -> Registered[C]:
        """Return the component called `name`, or raise ConfigError with the nearest name, and its options in it."""
        if name not in self and (meant := self.numbered(str(name))):
            said = " ".join(quote(f"{key}={value}") for key, value in meant.items())
            raise ConfigError(f"unknown {self.kind} {name!r}; write {said}")
        return super().__getitem__(name)

    def numbered(self, name: str) -> dict[str, str]:
        """Return the spec that "powersgd_rank2" or "qsgd_4bit" means, name and density of "topk_1%", {} of others."""
        said = re.fullmatch(r"(.*?[a-z])[-_ ]*(?:rank|r|bits?|b)?[-_ ]*(\d*\.?\d+)[-_ ]*(bits?|b|%|pct)?", name.lower())
        base = next((one for one in self.names() if said and plain(one) == plain(said[1])), "")
        if not said or not base:
            return {}
        options = dict.fromkeys({"rank", "bits"} & asdict(self[base].options).keys(), said[2])
        if (kept := float(said[2]) / (100 if said[3] in ("%", "pct") else 1)) < 1:
            return {self.kind: base, "density": f"{kept:g}"}
        return {self.kind: self.canonical(str(Spec(base, options)))} if options else {}

    def _made(self, entry: Registered[C], options: Any) -> C:
        if missing := sorted(getattr(entry.cls, "__abstractmethods__", ())):
            raise ConfigError(
                f"{self.kind} {entry.name} has no {' and no '.join(missing)}; {entry.cls.__name__} must define "
                "what the base class leaves open (CONTRIBUTING.md has an example)"
            )
        return entry.cls(options)  # type: ignore[call-arg]

    def canonical(self, spec: str, options: Mapping[str, Any] | None = None) -> str:
        """Return `spec` with `options` applied, naming only what differs from the defaults; ConfigError if unknown."""
        entry, resolved = self._resolve(spec, options or {})
        defaults = asdict(entry.options)
        changed = {key: str(value) for key, value in sorted(asdict(resolved).items()) if value != defaults[key]}
        return str(Spec(entry.name, changed))

    def _resolve(self, spec: str, overrides: Mapping[str, Any]) -> tuple[Registered[C], Any]:
        given = Spec.parse(spec, self.kind)
        entry = self[given.name]
        return entry, self._options(entry, {**given.options, **overrides})

    def _options(self, entry: Registered[C], given: Mapping[str, Any]) -> Any:
        defaults = asdict(entry.options)
        parsed = {}
        for key, value in given.items():
            if key not in defaults:
                raise no_option(f"{self.kind} {entry.name}", key, value, defaults)
            parsed[key] = _parse(f"{self.kind} option {entry.name}.{key}", value, defaults[key])
        try:
            return replace(entry.options, **parsed)
        except ValueError as error:
            raise ConfigError(f"{self.kind} {entry.name}: {error}") from None


def _parse(where: str, value: Any, default: Any) -> Any:
    kind = type(default)
    wrong = ConfigError(f"{where} must be of type {kind.__name__}, got {value!r}")
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ConfigError(f"{where} must be true or false, got {value!r}")
        return str(value).lower() == "true"
    if isinstance(value, bool) or value is None:
        raise wrong
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise wrong
    try:
        parsed = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if kind is float and not math.isfinite(parsed):
        raise ConfigError(f"{where} must be a finite number, got {value!r}")
    return parsed
