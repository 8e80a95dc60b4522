"""The complete configuration of one point: Hydra joins the files of conf/, then components and values are put in place.

Joining takes Hydra a twentieth of a second, and the points of a grid share a few choices of files. So each choice is
joined once, with the bare names of components, and its interpolations are resolved when the values are there. What was
joined is remembered from command to command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.config.cluster_node import calibrated
from ssfx.config.groups import COMPONENT_GROUPS, GROUPS, YAML_GROUPS, choices, options
from ssfx.config.remembered import remembered
from ssfx.core.errors import ConfigError
from ssfx.core.paths import conf_dir

Point = dict[str, Any]
"""One value for every key that the user or the experiment chose."""

_REFERENCE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")


def compose(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete configuration of one point as plain data; ConfigError for an option its choice does not have.

    A component is its defaults, then what files say about it, then the point's options. A group that is None is unset.
    """
    config = dict(_files(point))
    for group in COMPONENT_GROUPS:
        said = config.get(group, {})
        if name := point.get(group) or said.get("name"):
            defaults = {} if name == "auto" else options(group, name)
            config[group] = {**defaults, **said, "name": name}
    if any(key.startswith("cluster.") for key in point):
        config["cluster"] = calibrated(config["cluster"], point)
    for key, value in point.items():
        if key not in GROUPS:
            config = _put(config, key.split("."), value, key)
    return _resolved(config)


def chosen(point: Mapping[str, Any], group: str) -> Any:
    """Return the choice of `group` at a point: its own, else that of the files, else None."""
    return point.get(group) or _files(point).get(group, {}).get("name")


def _files(point: Mapping[str, Any]) -> Mapping[str, Any]:
    return joined(conf_dir(), tuple((group, point[group]) for group in YAML_GROUPS if group in point))


@cache
def joined(folder: Path, files: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Return the join of the `files` chosen from groups of `folder` as plain data to be read only.

    Components are their name and what files say about them; interpolations are left as they are.
    """
    sources = [*sorted(folder.rglob("*.yaml")), Path(__file__)]
    return _plain(remembered(lambda: _join(folder, files), files, sources))


def _join(folder: Path, files: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import MissingConfigException
    from omegaconf import OmegaConf

    words = [f"{group}='{name}'" for group, name in files]
    for group in COMPONENT_GROUPS:
        _register(group, ("auto",) if group == "engine" else choices(group))
    with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3"):
        try:
            config = hydra_compose("config", words)
        except MissingConfigException:
            _register("engine", choices("engine"))  # late: few files choose one, and importing all takes a while
            config = hydra_compose("config", words)
    return {str(key): value for key, value in _plain(OmegaConf.to_container(config)).items()}


@cache
def _register(group: str, names: tuple[str, ...]) -> None:
    """Hydra accepts the name of a component in the defaults of a file; the node is the bare name."""
    from hydra.core.config_store import ConfigStore

    for name in names:
        ConfigStore.instance().store(group=group, name=name, node={"name": name}, provider="ssfx")


def _put(node: dict[str, Any], path: list[str], value: Any, key: str) -> dict[str, Any]:
    """Return a copy of `node` with `value` at `path`, which must exist."""
    head, *rest = path
    if head not in node:
        raise _no_option(key)
    return {**node, head: _put(node[head], rest, value, key) if rest else value}


def _no_option(key: str) -> ConfigError:
    group, _, option = key.partition(".")
    have = " or ".join(f"{group}={name}" for name in choices(group) if option in options(group, name))
    return ConfigError(f"the chosen {group} has no option {option}; {f'choose {have}, or ' * bool(have)}drop {key}")


def _resolved(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `config` with its interpolations replaced by what they refer to."""
    try:
        return _plain(_looked_up(config, config))
    except (LookupError, TypeError):
        from omegaconf import OmegaConf  # it knows every form and how to say what is wrong, but takes milliseconds

        return _plain(OmegaConf.to_container(OmegaConf.create(config), resolve=True))


def _looked_up(value: Any, config: Mapping[str, Any]) -> Any:
    """Return a copy of `value` with ${key} replaced; LookupError or TypeError for any other form."""
    if isinstance(value, dict):
        return {key: _looked_up(item, config) for key, item in value.items()}
    if isinstance(value, list):
        return [_looked_up(item, config) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    found: Any = config
    reference = _REFERENCE.fullmatch(value)
    for key in reference[1].split(".") if reference else ():
        found = found[key]
    if isinstance(found, (dict, list)) or "${" in str(found):
        raise LookupError(value)
    return found


def _plain(value: Any) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value
