"""What is found by name: components of the user's own, and what the parts above the library offer it.

Modules that register schemes, compressors, data sets, ... when they are imported are the entry points "ssfx.plugins" of
installed packages, and $SSFX_PLUGINS, a list like PATH of modules or .py files, which `--plugin` adds to and every
process of a run inherits. Commands ("ssfx.verbs"), registries ("ssfx.registries") and functions ("ssfx.hooks") of the
harness and of the papers are entry points of ssfx itself, and so is what attaches to sharded models ("ssfx.attach").

What the top of the package offers is found here, too, so that no room below it has to import upwards:
`ssfx/__init__.py`, which Python runs before any other module of the package, says how its public functions are found.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.paths import checkout

GROUP = "ssfx.plugins"
VARIABLE = "SSFX_PLUGINS"
_loaded: set[str] = set()


def add_plugin(name: str) -> None:
    """Have this process and those that it starts import a module, or a .py file, when they look for components."""
    known = [one for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one]
    path = str(Path(name).expanduser().resolve()) if name.endswith(".py") else name
    if name.endswith(".py") and not Path(path).is_file():
        raise ConfigError(f"plugin {name}: there is no file {path}")
    if Path(name).is_file() and not name.endswith(".py"):
        raise ConfigError(f"plugin {name} is no Python; name a .py file, or a module")
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*known, path]))


def any_plugins() -> bool:
    """Return whether load_plugins would import something."""
    return bool(os.environ.get(VARIABLE)) or _declared()


@cache
def declared(group: str) -> Mapping[str, str]:
    """Return the entry points of a group, "module:name" by name, those of ssfx first and in their order.

    Those of ssfx are read from pyproject.toml in a checkout, so that an installation made before them does not matter.
    """
    own: dict[str, str] = {}
    if folder := checkout():
        import tomllib

        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        own = dict(project.get("entry-points", {}).get(group, {}))
    others: dict[str, str] = {}
    for place in sys.path:
        for path in sorted(Path(place).glob("*-info/entry_points.txt")):
            others = _section(path.read_text(encoding="utf-8"), group) | others
    return {**own, **{name: value for name, value in others.items() if name not in own}}


def _section(text: str, group: str) -> dict[str, str]:
    """Return the lines "name = value" below [group] of an installed package's entry points."""
    found, inside = {}, False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.strip() == f"[{group}]"
        elif inside and "=" in line:
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip()
    return found


def provided(group: str, name: str) -> Any:
    """Return what the entry point `name` of a group names, None where nothing of that name is declared or importable.

    ModuleNotFoundError for a requirement of it that is not installed.
    """
    value = declared(group).get(name)
    if value is None:
        return None
    module, _, attribute = value.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            return None  # a part that is not installed
        raise


def _declared() -> bool:
    """Return whether an installed package has an entry point of GROUP."""
    return bool(declared(GROUP))


def load_plugins() -> None:
    """Import every plugin, each once; ConfigError, naming the plugin, for one that cannot be imported."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if name not in _loaded:
            _loaded.add(name)  # before the import: a plugin may look up another component
            _load(name)
    if GROUP not in _loaded and _declared():
        _loaded.add(GROUP)
        for value in declared(GROUP).values():
            _load(value.partition(":")[0])


def _load(name: str) -> None:
    try:
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"ssfx_plugin_{Path(name).stem}", name)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look up the module that they are in
            spec.loader.exec_module(module)
            return
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)
        importlib.import_module(name)
    except Exception as error:
        _loaded.discard(name)
        text = " ".join(str(error).split())
        raise ConfigError(f"plugin {name} cannot be imported: {type(error).__name__}: {text}") from error


_find: Callable[[str], Any] | None = None


def open_door(find: Callable[[str], Any]) -> None:
    """Let `through` find the public functions of the package by `find`."""
    global _find
    _find = find


def through(name: str) -> Any:
    """Return the public function `name` of the package."""
    assert _find is not None
    return _find(name)
