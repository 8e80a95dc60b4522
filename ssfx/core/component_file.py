"""The YAML files of one component each: found in the user's folders first, then in conf/, and read without Hydra.

Engines and simulations need the description of a cluster, and importing Hydra would take longer than simulating a step.
So a file of a component may have one thing of Hydra's: `defaults`, a list of files of its group that it continues, with
`_self_` where it stands itself. Hydra, reading the same files, finds the same (tests/config/test_compose.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.core.digests import Changed, check_yaml
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import refusal, text_of
from ssfx.core.paths import conf_dirs

REQUIRED = {
    "cluster": (
        "summary", "nodes", "devices_per_node", "device", "nics_per_node", "intra", "inter", "source", "calibration",
    ),
}  # fmt: skip
"""What a file of a group must say, with the files that it continues."""

_MOST_LISTS = 1000
"""The parser written in C ends the process at some ten thousand lists inside one another."""


def file_names(group: str) -> tuple[str, ...]:
    """Return the names of the files of a group in all folders of the configuration, sorted."""
    return tuple(sorted({path.stem for folder in conf_dirs() for path in (folder / group).glob("*.yaml")}))


def path_of(group: str, name: str) -> Path | None:
    """Return the first file of that name, the user's before the shipped one; None without any.

    A cluster may be named by the path of its file.
    """
    if group == "cluster" and is_file(name):
        path = Path(name).expanduser()
        return path if path.is_file() else None
    found = (folder / group / f"{name}.yaml" for folder in conf_dirs())
    return next((path for path in found if path.exists()), None)


def is_file(name: str) -> bool:
    """Return whether `name` is the path of a file, not the name of a choice."""
    return name.endswith((".yaml", ".yml"))


def component_file(group: str, name: str) -> dict[str, Any]:
    """Return what the file of a component holds, as a copy; ConfigError without a file, or for one that is wrong."""
    path = path_of(group, name)
    if path is None:
        raise unknown(group, name, file_names(group))
    found: dict[str, Any] = {"name": name}
    for one in _chain(path, (), group):
        found = merged(found, one)
    if lacking := [key for key in REQUIRED.get(group, ()) if key not in found]:
        raise ConfigError(f"{path} lacks {', '.join(lacking)}; the files of conf/{group}/ are examples")
    return found


def _chain(path: Path, above: tuple[Path, ...], group: str) -> list[Mapping[str, Any]]:
    """Return the contents of a file and those that it continues, the most general first."""
    if path in above:
        raise ConfigError(f"{path} continues itself through its defaults; drop one of them")
    own = dict(_read(path))
    parts: list[Mapping[str, Any]] = []
    names = own.pop("defaults", ["_self_"])
    for name in names if "_self_" in names else [*names, "_self_"]:
        other = path.parent / f"{name}.yaml"
        if name == "_self_":
            parts.append(own)
        elif isinstance(name, str) and (found := path_of(group, name)):
            parts += _chain(other if other.exists() and other != path else found, (*above, path), group)
        else:
            raise ConfigError(f"{path}: defaults of a component name files of its own group, not {name!r}")
    return parts


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as one, a copy; `second` is right where both name a value, mappings are merged likewise."""
    found = {key: merged(value, {}) if isinstance(value, Mapping) else value for key, value in first.items()}
    for key, value in second.items():
        inner = found.get(key)
        found[key] = merged(inner if isinstance(inner, Mapping) else {}, value) if isinstance(value, Mapping) else value
    return found


def _read(path: Path) -> Mapping[str, Any]:
    return _parsed(path, path.stat().st_mtime_ns)


@cache
def _parsed(path: Path, _changed_ns: int) -> Mapping[str, Any]:
    import yaml

    text = text_of(path, ConfigError)
    if sum(map(text.count, ("[", "{", "- "))) > _MOST_LISTS:
        raise ConfigError(f"{path} holds more than {_MOST_LISTS} lists, so it describes no component")
    try:
        check_yaml(text)
        found = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except Changed as changed:
        raise ConfigError(f"{refusal(path, changed)}, or drop its first and last line") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} must hold key: value lines")
    return found
