"""The complete configuration of one point: Hydra joins the files, then components and values are put in their place.

Joining takes Hydra a twentieth of a second, and the points of a grid share a few choices of workload, preset and
experiment. So each such choice is joined once, with the bare names of components; what a point adds is put on top, and
OmegaConf resolves interpolations last, so that they see the values of the point. tests/config/test_compose.py holds the
result equal to what Hydra alone makes of all files and all keys.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ssfx.config.file_check import SECTIONS, check_file
from ssfx.config.groups import (
    COMPONENT_GROUPS,
    GROUPS,
    WITH_SPECS,
    YAML_GROUPS,
    choices,
    defaults,
    exists,
    node,
    options,
)
from ssfx.config.overrides import typed_options
from ssfx.config.schema import KEYS
from ssfx.core.component_file import merged, path_of
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import DAMAGED
from ssfx.core.paths import conf_dirs
from ssfx.core.spec import Spec, no_option
from ssfx.perf_model.cluster_file import with_options
from ssfx.schemes.base import OTHER_OPTIONS

Point = dict[str, Any]
"""One value for every key that the user or the experiment chose."""

NODE_GROUPS = ("cluster", *COMPONENT_GROUPS)
"""Groups whose files describe one thing each, without saying anything of other groups."""
_WORD = re.compile(r"\w+")
_SEARCHED: ContextVar[tuple[Path, ...] | None] = ContextVar("_SEARCHED", default=None)
"""The user's folders while ssfx joins; Hydra keeps plugins for all that its process does, and others have their own."""
JOINED_GROUPS = tuple(group for group in YAML_GROUPS if group != "cluster")


def compose(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete configuration of one point as plain data; ConfigError for an option its choice does not have.

    A component is its file, then what other files say about it, then the point's options. A group of None is unset.
    """
    point = expanded(point)
    config = dict(_files(point))
    for group in NODE_GROUPS:
        said = config.get(group, {})
        if not isinstance(said, Mapping):
            raise ConfigError(
                f"a configuration file says {group}: {said}; write '- override /{group}: {said}' in its defaults"
            )
        if choice := point.get(group) or said.get("name"):
            own = node(group, choice)
            if group != "cluster" and (odd := [key for key in said if key not in own]):
                usual = _files({key: value for key, value in point.items() if key != group}).get(group, {}).get("name")
                if wrong := [key for key in odd if not usual or key not in node(group, usual)]:
                    raise unknown(f"option of {group} {own['name']} in a configuration file:", wrong[0], own)
                said = {key: value for key, value in said.items() if key in own}  # they are of the choice replaced here
            config[group] = {**merged(own, said), "name": own["name"]}
    cluster = {key.partition(".")[2]: value for key, value in point.items() if key.startswith("cluster.")}
    if cluster:
        config["cluster"] = with_options(config["cluster"], cluster)
    for key, value in point.items():
        group, _, option = key.partition(".")
        if option and group != "cluster":
            if option not in config.get(group, {}):
                raise _no_option(key)
            config[group] = {**config[group], option: value}
        elif not option and key not in GROUPS:
            config[key] = value
    # OmegaConf is given only the keys that hold interpolations, and those that these name, and only once where
    # they hold the same: it takes six milliseconds for a whole configuration, and a grid has thousands of them.
    texts = {key: list(_references(value)) for key, value in config.items()}
    words = set(_WORD.findall(" ".join(text for found in texts.values() for text in found)))
    part = {key: value for key, value in config.items() if texts[key] or key in words}
    return {**deepcopy(dict(config)), **json.loads(_with_references(json.dumps(part)))}


def expanded(point: Mapping[str, Any]) -> Point:
    """Return a point in which every component has the name it is registered by, and its options are keys of their own.

    "dgc(value_dtype=float16)" becomes compressor=dgc compressor.value_dtype=float16, and so does a file of the user's
    that says this. ConfigError for an option that is given in brackets and by its key.
    """
    full = dict(point)
    for group in WITH_SPECS:
        if (choice := full.get(group)) is None:
            continue
        spec = Spec.parse(choice, group)
        component = node(group, spec.name)
        usual = defaults(group, component["name"])
        given = typed_options(group, spec)
        for option in given:
            if option not in usual and group == "scheme":
                raise unknown(f"option of scheme {component['name']}", option, usual, OTHER_OPTIONS)
            if option not in usual:
                raise no_option(f"{group} {component['name']}", option, given[option], usual)
            if f"{group}.{option}" in point:
                raise ConfigError(f"{group}={choice} and {group}.{option} give one option twice; drop one of them")
        other = {option: value for option, value in component.items() if option != "name" and value != usual[option]}
        full[group] = component["name"]
        full = {
            **full,
            **{f"{group}.{key}": value for key, value in {**other, **given}.items() if f"{group}.{key}" not in point},
        }
    return full


def chosen(point: Mapping[str, Any], group: str) -> Any:
    """Return the choice of `group` at a point: its own, else that of the files, else None."""
    return point.get(group) or _files(point).get(group, {}).get("name")


def _files(point: Mapping[str, Any]) -> Mapping[str, Any]:
    return joined(conf_dirs(), tuple((group, point[group]) for group in JOINED_GROUPS if group in point))


@cache
def joined(folders: tuple[Path, ...], files: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Return the join of the `files` chosen from groups of `folders` as plain data to be read only.

    Clusters and components are their name and what other files say about them; interpolations are left as they are.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    for group, name in files:
        check_file(group, name)
    _register()
    token = _SEARCHED.set(folders[:-1])
    words = [f"{group}='{name}'" for group, name in files]
    try:
        with initialize_config_dir(config_dir=str(folders[-1].resolve()), version_base="1.3"):
            config = hydra_compose("config", words)
    except (HydraException, OmegaConfBaseException, YAMLError, OSError, *DAMAGED) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        where = " ".join(f"{group}={name}" for group, name in files) or "conf/config.yaml"
        raise ConfigError(f"Hydra cannot join the files of {where}: {first}") from None
    finally:
        _SEARCHED.reset(token)
    found = _plain(OmegaConf.to_container(config))
    for group in SECTIONS:
        section = found.setdefault(group, None) or {}
        if not isinstance(section, Mapping):
            raise ConfigError(f"{_where(files, group)}: {group} must hold key: value lines, got {section!r}")
        found[group] = {"name": dict(files).get(group), **section}
    if unset := [group for group in GROUPS if group not in ("compressor", "memory") and found.get(group) is None]:
        where = " ".join(f"{group}={name}" for group, name in files)
        raise ConfigError(f"the files of {where} choose no {unset[0]}; add one to their defaults")
    if lacking := [key for key in KEYS if key not in found]:
        raise ConfigError(f"{_where(files, 'workload')} lacks {', '.join(lacking)}; conf/workload/ has examples")
    return found


def _where(files: tuple[tuple[str, str], ...], group: str) -> str:
    """Return the file of the choice of a group, for people."""
    name = dict(files).get(group, "")
    return str(path_of(group, name) or f"conf/{group}/")


@cache
def _register() -> None:
    """Hydra finds the bare names of clusters and components first, then the user's folders, then the shipped one."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.object_type import ObjectType
    from hydra.core.plugins import Plugins
    from hydra.plugins.config_source import ConfigResult, ConfigSource
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf

    class Names(ConfigSource):  # type: ignore[misc]
        @staticmethod
        def scheme() -> str:
            return "ssfx"

        def load_config(self, config_path: str) -> ConfigResult:
            name = {"name": config_path.partition("/")[2].removesuffix(".yaml")}
            return ConfigResult(
                config=OmegaConf.create(name), path=self.full_path(), provider=self.provider, header={"package": None}
            )

        def available(self) -> bool:
            return True

        def is_group(self, config_path: str) -> bool:
            return config_path in NODE_GROUPS

        def is_config(self, config_path: str) -> bool:
            group, _, name = config_path.removesuffix(".yaml").partition("/")
            return group in NODE_GROUPS and exists(group, name)

        def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
            return list(choices(config_path)) if config_path in NODE_GROUPS else []

    class Folders(SearchPathPlugin):  # type: ignore[misc]
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            own = _SEARCHED.get()
            if own is None:
                return
            search_path.prepend("ssfx", "ssfx://", "main")
            for folder in own:
                search_path.prepend("ssfx", folder.as_uri(), "main")

    Plugins.instance().register(Names)
    Plugins.instance().register(Folders)


def _no_option(key: str) -> ConfigError:
    group, _, option = key.partition(".")
    have = " or ".join(f"{group}={name}" for name in choices(group) if option in options(group, name))
    return ConfigError(f"the chosen {group} has no option {option}; {f'choose {have}, or ' * bool(have)}drop {key}")


@lru_cache(maxsize=1024)
def _with_references(text: str) -> str:
    """Return the JSON object in `text` with its interpolations replaced by what they refer to, as JSON."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return json.dumps(OmegaConf.to_container(OmegaConf.create(json.loads(text)), resolve=True))
    except OmegaConfBaseException as error:
        raise ConfigError(f"a reference cannot be resolved: {str(error).splitlines()[0]}") from None


def _references(value: Any) -> Iterator[str]:
    """Yield the texts in `value` that hold interpolations."""
    if isinstance(value, str) and "${" in value:
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _references(item)


def _plain(value: Any) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value
