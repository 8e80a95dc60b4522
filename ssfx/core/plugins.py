"""Components of the user's own: modules that register schemes, compressors, data sets, ... when they are imported.

They are found in two places: the entry points "ssfx.plugins" of installed packages, and $SSFX_PLUGINS, a list like PATH
of modules or .py files, which `--plugin` adds to and every process of a run inherits.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from ssfx.core.errors import ConfigError

GROUP = "ssfx.plugins"
VARIABLE = "SSFX_PLUGINS"
_loaded: set[str] = set()


def add_plugin(name: str) -> None:
    """Have this process and those that it starts import a module, or a .py file, when they look for components."""
    known = [one for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one]
    path = str(Path(name).expanduser().resolve()) if name.endswith(".py") else name
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*known, path]))


def any_plugins() -> bool:
    """Return whether load_plugins would import something."""
    return bool(os.environ.get(VARIABLE)) or _declared()


def _declared() -> bool:
    """Return whether an installed package has an entry point of GROUP."""
    found = (path for folder in sys.path for path in Path(folder).glob("*-info/entry_points.txt"))
    return any(GROUP in path.read_text(encoding="utf-8") for path in found)


def load_plugins() -> None:
    """Import every plugin, each once; ConfigError, naming the plugin, for one that cannot be imported."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if name not in _loaded:
            _loaded.add(name)  # before the import: a plugin may look up another component
            _load(name)
    if GROUP not in _loaded and _declared():
        _loaded.add(GROUP)
        from importlib.metadata import entry_points  # late: importing it takes as long as all of click

        for point in entry_points(group=GROUP):
            _load(point.value.partition(":")[0])


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
