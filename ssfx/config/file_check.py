"""Files of workload/, preset/ and experiment/ before Hydra joins them: what they say is known, or refused in a line."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ssfx.config.groups import GROUPS, YAML_GROUPS
from ssfx.config.overrides import check
from ssfx.config.schema import KEYS
from ssfx.core.cluster_keys import CLUSTER_KEYS, OTHER_NAMES
from ssfx.core.component_file import leaves_folder, outside, path_of
from ssfx.core.errors import ConfigError
from ssfx.core.files import text_of
from ssfx.core.numbers import numeric
from ssfx.core.yaml_file import Keys, check_keys, read_yaml

AXES = ("sweep", "simulated", "real")
"""What an experiment holds lists of values under."""
SECTIONS: Mapping[str, Keys] = {
    "workload": dict.fromkeys(("name", "summary", "epochs", "trained_on", "train_samples")),
    "preset": dict.fromkeys(
        ("name", "summary", "steps", "warmup_steps", "training_steps", "counting_steps", "repeats", "evaluate")
    ),
    "experiment": dict.fromkeys(("name", "summary", "also", *AXES)),
}
"""The keys that a file of each group may have of its own, beside those of a run."""

_GLOBAL = re.compile(r"^#\s*@package\s*:?\s*_global_\s*$", re.MULTILINE)
_ENTRY = re.compile(r"(?:override\s+)?(?:optional\s+)?(?:override\s+)?/?(?P<group>[\w/]+)(?:@\S+)?")
"""How an entry of `defaults` names a group, as "override /model"."""


def check_file(group: str, name: str, above: tuple[Path, ...] = ()) -> None:
    """Raise ConfigError, naming the file and the nearest key, when the file of a choice says what nothing reads.

    So for the files that it continues, which are `above` it. A file that is not there is left to Hydra.
    """
    if leaves_folder(name):
        raise outside(group, name)
    path = path_of(group, name)
    if path is None or group not in SECTIONS or path in above:
        return
    said = dict(read_yaml(path))
    for other, choice in _continued(said.pop("defaults", []), group, path):
        check_file(other, choice, (*above, path))
    if _GLOBAL.search(text_of(path, ConfigError)):
        _check_values(said, path)
        said = said.get(group) or {}
        check_keys(said, SECTIONS[group], path, f"{group}.")
    elif wrong := next((key for key in said if key not in SECTIONS[group] and key in (*KEYS, *GROUPS)), None):
        line = "its first line must be '# @package _global_'" if group != "preset" else "a preset has none"
        raise ConfigError(f"{path}: {wrong} is a key of a run; {line}, as in the files of conf/{group}/")
    else:
        check_keys(said, SECTIONS[group], path)
    if group == "experiment":
        _check_axes(said, path)
    if group == "workload" and "epochs" in said:
        epochs, samples, dataset = (numeric(said.get(key)) for key in ("epochs", "train_samples", "trained_on"))
        numbers = (isinstance(one, int | float) and not isinstance(one, bool) for one in (epochs, samples))
        if not (all(numbers) and 0 < epochs < 10**6 and 1 <= samples < 10**12 and isinstance(dataset, str)):
            raise ConfigError(
                f"{path}: workload.epochs goes with train_samples, both positive numbers, and with trained_on, a data "
                "set"
            )


def _continued(listed: Any, group: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield group and choice of every file that `defaults` names; ConfigError for what is no list of files."""
    for entry in listed if isinstance(listed, list) else [listed]:
        if isinstance(entry, Mapping) and len(entry) == 1:
            ((key, value),) = entry.items()
            found = _ENTRY.fullmatch(str(key))
            chosen = value if isinstance(value, list) else [value]
            if found and all(one is None or isinstance(one, str | int) for one in chosen):
                names = [(found["group"], str(one)) for one in chosen if one is not None]
            else:
                raise ConfigError(f"{path}: defaults has {entry!r}; write - override /GROUP: NAME")
        elif isinstance(entry, str):
            names = [(group, entry)] if entry != "_self_" else []
        else:
            raise ConfigError(f"{path}: defaults has {entry!r}; write a list of - override /GROUP: NAME")
        for other, choice in names:
            if leaves_folder(choice.removeprefix("/")):
                raise ConfigError(f"{path}: defaults has {choice}, which leaves its folder; name a file in {other}/")
            yield other, choice.removeprefix("/")


def _check_values(said: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError for what a file says of no key and of no group."""
    keys: dict[str, Keys | None] = dict.fromkeys((*KEYS, *GROUPS))
    check_keys(said, keys, path)
    for group in ("cluster", *YAML_GROUPS):
        if isinstance(below := said.get(group), Mapping):
            check_keys(below, SECTIONS.get(group, CLUSTER_KEYS), path, f"{group}.", OTHER_NAMES)


def _check_axes(said: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError for a key under sweep, simulated, real or also that no run has, or what is no values of it."""
    also = said.get("also") or []
    if not isinstance(also, list):
        raise ConfigError(f"{path}: also must be a list of points, as - {{scheme: ssgd, world_size: 1}}, got {also!r}")
    points = [(f"also[{i}]", point) for i, point in enumerate(also)]
    for name, axes in [*((name, said.get(name) or {}) for name in AXES), *points]:
        if not isinstance(axes, Mapping):
            raise ConfigError(f"{path}: {name} must hold key: value lines, got {axes!r}")
        for key, values in axes.items():
            if values == []:
                raise ConfigError(f"{path}: {name}.{key} has no values; list some, or drop it")
            try:
                check(str(key), ())
            except ConfigError as error:
                raise ConfigError(f"{path}: {name}: {error}") from None
