"""Component specs: "name" or "name(option=value,...)", the text by which plans, rows and users refer to a component."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, Generic, TypeVar

from ssfx.errors import ConfigError, unknown
from ssfx.registry import Registry

_SPEC = re.compile(r"^(?P<name>\w+)(?:\((?P<options>[^()]*)\))?$")


@dataclass(frozen=True)
class NoOptions:
    """Options of a component that has none."""


C = TypeVar("C")


@dataclass(frozen=True)
class Entry(Generic[C]):
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


class Catalog(Registry[Entry[C]]):
    """A registry whose components are built from specs."""

    def __init__(self, kind: str, package: str) -> None:
        super().__init__(kind, package)
        self.build: Callable[[str], C] = cache(self._build)

    def register(self, options: Any = NoOptions()) -> Callable[[type[C]], type[C]]:  # noqa: B008 (frozen)
        """Register the decorated class with `options`, a frozen dataclass instance holding the defaults."""

        def decorate(cls: type[C]) -> type[C]:
            self.add(Entry(cls, options))
            return cls

        return decorate

    def canonical(self, name: str, options: dict[str, Any] | None = None) -> str:
        """Return the spec that names only the options that differ from the defaults; ConfigError if it cannot be built."""
        entry = self[name]
        defaults = asdict(entry.options)
        chosen = asdict(self._options(entry, options or {}))
        changed = [f"{key}={value}" for key, value in sorted(chosen.items()) if value != defaults[key]]
        return f"{name}({','.join(changed)})" if changed else name

    def _build(self, spec: str) -> C:
        match = _SPEC.match(spec.replace(" ", ""))
        if not match:
            raise ConfigError(f"{spec!r} is not a {self.kind}; write a name, or name(option=value)")
        entry = self[match["name"]]
        given: dict[str, Any] = {}
        for part in filter(None, (match["options"] or "").split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise ConfigError(f"{spec!r}: {part!r} is not option=value")
            given[key] = value
        return entry.cls(self._options(entry, given))  # type: ignore[call-arg]

    def _options(self, entry: Entry[C], given: dict[str, Any]) -> Any:
        known = {f.name for f in fields(entry.options)}
        parsed = {}
        for key, value in given.items():
            if key not in known:
                raise unknown(f"option of {self.kind} {entry.name}", key, known)
            parsed[key] = _parse(f"{self.kind} option {entry.name}.{key}", value, getattr(entry.options, key))
        try:
            return replace(entry.options, **parsed)
        except ValueError as error:
            raise ConfigError(f"{self.kind} {entry.name}: {error}") from None


def _parse(where: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ConfigError(f"{where} must be true or false, got {value!r}")
        return str(value).lower() == "true"
    if kind is int and isinstance(value, float) and value != int(value):
        raise ConfigError(f"{where} must be of type int, got {value!r}")
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{where} must be of type {kind.__name__}, got {value!r}") from None
