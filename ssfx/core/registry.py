"""Names to components: a package of one-component files becomes a table that is filled on first look-up."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.plugins import load_plugins


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
    """A table of components of one kind.

    A component that is asked for is looked for in the module of `package` that has its name or the beginning of it, so
    that a hundred others need not be imported; then in `table`, a module of several. If it is not there, and for every
    listing, all of them are imported, and plugins.
    """

    def __init__(
        self, kind: str, package: str, table: str = "", others: Mapping[str, str] = {}, nearest_of: str = ""
    ) -> None:
        """`others` and `nearest_of` are those of `ssfx.core.errors.unknown`."""
        self.kind, self.others, self.nearest_of = kind, others, nearest_of
        self._package, self._table = package, table
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
        if _odd(name):
            raise ConfigError(f"a {self.kind} is given by its name, as {self.kind}={self.names()[0]!r}, got {name!r}")
        if name not in self:
            raise unknown(self.kind, name, self._entries, self.others, self.nearest_of)
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        if _odd(name):
            return False
        if name not in self._entries and not self._loaded:
            nearest = max((one for one in self._modules() if name.startswith(one)), key=len, default=None)
            for module in filter(None, (nearest, self._table)):
                if name not in self._entries:
                    importlib.import_module(f"{self._package}.{module}")
            if name not in self._entries:
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
            for module in self._modules():
                importlib.import_module(f"{self._package}.{module}")
            load_plugins()
        except BaseException:
            self._loaded = False  # a module that failed must fail again, not leave a shorter table
            raise

    def _modules(self) -> list[str]:
        return [module.name for module in pkgutil.iter_modules(importlib.import_module(self._package).__path__)]


def _odd(name: object) -> bool:
    """Return whether a user gave something that is no name."""
    return not isinstance(name, str)
