"""Names to components: a package of one-component files becomes a table that is filled on first look-up."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from ssfx.errors import unknown


class Named(Protocol):
    """What a registry holds: anything with a name and a one-line summary."""

    @property
    def name(self) -> str:
        """Key in the table."""

    @property
    def summary(self) -> str:
        """What a listing prints beside the name."""


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """A table of components of one kind; every module of `package` is imported before the first answer."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._entries: dict[str, T] = {}
        self._loaded = False

    def add(self, entry: T) -> T:
        """Register `entry` under its name; two components of one name are a programming error."""
        if entry.name in self._entries:
            raise ValueError(f"{self.kind} {entry.name!r} is registered twice")
        self._entries[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        """Return the component called `name`, or raise ConfigError with the nearest name."""
        self._load()
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self.kind, name, self._entries) from None

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[T]:
        """Yield the components in alphabetical order of their names."""
        self._load()
        return iter([self._entries[name] for name in sorted(self._entries)])

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return [entry.name for entry in self]

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # before the imports: a component may look up another one
        try:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
        except BaseException:
            self._loaded = False  # a module that failed must fail again, not leave a shorter table
            raise
