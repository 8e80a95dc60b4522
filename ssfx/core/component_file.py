"""The YAML files of one component each: found in the user's folders first, then in conf/, and read without Hydra.

Engines and simulations need the description of a cluster, and importing Hydra would take longer than simulating a step.
So a file of a component may have one thing of Hydra's: `defaults`, a list of files of its group that it continues, with
`_self_` where it stands itself. Hydra, reading the same files, finds the same (tests/config/test_compose.py).
"""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ssfx.core.cluster_keys import CLUSTER_KEYS, OTHER_NAMES, REQUIRED
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.paths import conf_dirs
from ssfx.core.yaml_file import check_keys, read_yaml


def file_names(group: str) -> tuple[str, ...]:
    """Return the names of the files of a group in all folders of the configuration, sorted."""
    return tuple(sorted({path.stem for folder in conf_dirs() for path in (folder / group).glob("*.yaml")}))


def path_of(group: str, name: str) -> Path | None:
    """Return the first file of that name, the user's before the shipped one; None without any, and for a path.

    No name leaves the folder of its group. A cluster alone may be named by the path of its file.
    """
    if group == "cluster" and is_file(name):
        path = Path(name).expanduser()
        return path if path.is_file() else None
    if leaves_folder(name):
        return None
    found = (folder / group / f"{name}.yaml" for folder in conf_dirs())
    return next((path for path in found if path.exists()), None)


def leaves_folder(name: str) -> bool:
    """Return whether `name`, below the folder of a group, would be a file outside it."""
    path = PurePath(name)
    return path.is_absolute() or ".." in path.parts


def outside(group: str, name: str) -> ConfigError:
    """Return the error for a name that leaves the folder of its group."""
    return ConfigError(
        f"{group}={name} leaves the folder {group}/; write the name of a file in it, and --config-dir DIR for files of "
        "your own"
    )


def is_file(name: str) -> bool:
    """Return whether `name` is the path of a file, not the name of a choice."""
    return name.endswith((".yaml", ".yml"))


def component_file(group: str, name: str) -> dict[str, Any]:
    """Return what the file of a component holds, as a copy; ConfigError without a file, or for one that is wrong."""
    path = path_of(group, name)
    if path is None:
        raise unknown(group, name, file_names(group))
    if not name.isprintable():
        raise ConfigError(f"{group}={name!r} has a line break or the like in it; rename the file")
    found: dict[str, Any] = {"name": name}
    chain = _chain(path, (), group)
    for _, one in chain:
        for link in ("intra", "inter"):
            if group == "cluster" and isinstance(own := one.get(link), Mapping) and "link" in own:
                found.pop(link, None)  # another kind has all its own numbers
        found = merged(found, one)
    if group == "cluster" and (lacking := [key for key in REQUIRED if key not in found]):
        raise ConfigError(
            f"{path} lacks {', '.join(lacking)}; begin it with the line defaults: [box, _self_], which has all of them"
        )
    for file, one in chain if group == "cluster" else ():
        check_keys(one, CLUSTER_KEYS, file, meant=OTHER_NAMES)
        for section in (one, *(one[name] for name in ("published", "fitted") if one.get(name))):
            if unset := [link for link in ("intra", "inter") if link in section and section[link] is None]:
                raise ConfigError(f"{file}: {unset[0]} must hold key: value lines; drop it to leave the link as it is")
            if not isinstance(factors := section.get("factors"), Mapping | None):
                raise ConfigError(f"{file}: cluster.factors must hold primitive: number lines, got {factors!r}")
    return found


def _chain(path: Path, above: tuple[Path, ...], group: str) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return a file and those that it continues, each with what it holds, the most general first."""
    if path in above:
        raise ConfigError(f"{path} continues itself through its defaults; drop one of them")
    own = dict(read_yaml(path))
    parts: list[tuple[Path, Mapping[str, Any]]] = []
    names = own.pop("defaults", ["_self_"])
    if not isinstance(names, list):
        raise ConfigError(f"{path}: defaults is a list of files of its own group, not {names!r}")
    if group == "cluster":
        check_keys(own, dict.fromkeys(CLUSTER_KEYS), path, meant=OTHER_NAMES)
    for name in names if "_self_" in names else [*names, "_self_"]:
        other = path.parent / f"{name}.yaml"
        if name == "_self_":
            parts.append((path, own))
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
