"""YAML files that people write: read as Hydra reads them, or refused in a line that names the file and the key."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError, nearest, unknown
from ssfx.core.files import text_of

NO_NAMES: Mapping[str, str] = {}
Keys = Mapping[str, "Keys | None"]
"""The keys that a mapping may have, with those of the mapping below each; None: a value, or keys that are not known."""

_WORDS = ("name", "summary", "source")
"""Keys that hold one line, wherever they stand."""
_MOST_LISTS = 1000
"""The parser written in C ends the process at some ten thousand lists inside one another."""
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_NUMBERS = {
    _INT: r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)",
    _FLOAT: r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
}
"""What a number looks like. YAML 1.1 takes 1e-5 for text, 1:30:00 for 5400, and 0123 for 83."""


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Return what a YAML file holds, to be read only; ConfigError for one that holds no mapping, or a key twice."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    return _parsed(path, changed_ns)


def check_keys(said: Any, keys: Keys, path: Path, above: str = "", meant: Mapping[str, str] = NO_NAMES) -> None:
    """Raise ConfigError for the first key of `said`, or of a mapping below, that is none of `keys`: with the nearest.

    `above` is the key that `said` stands under, with a point behind. `meant` has keys by other names that people use.
    """
    if not isinstance(said, Mapping):
        raise ConfigError(f"{path}: {above.rstrip('.')} must hold key: value lines, got {said!r}")
    for key, value in said.items():
        if key not in keys:
            fitting = {**{name: other for name, other in meant.items() if other in keys}, **{one: one for one in keys}}
            close = nearest(str(key).lower(), fitting)
            hint = f"unknown key {key!r}; did you mean {fitting[close]!r}?" if close else ""
            error = hint or unknown("key", str(key), keys)
            raise ConfigError(f"{path}: {f'under {above.rstrip(chr(46))}: ' if above else ''}{error}")
        if key in _WORDS and (isinstance(value, Mapping | list) or len(str(value).strip().splitlines()) > 1):
            raise ConfigError(f"{path}: {above}{key} must be one line of text, got {value!r:.60}")
        below = keys[key]
        if below is not None and value is not None:
            check_keys(value, below, path, f"{above}{key}.", meant)


@cache
def _parsed(path: Path, _changed_ns: int) -> Mapping[str, Any]:
    import yaml

    text = text_of(path, ConfigError)
    if sum(map(text.count, ("[", "{", "- "))) > _MOST_LISTS:
        raise ConfigError(f"{path} holds more than {_MOST_LISTS} lists, so it describes no component")
    try:
        found = yaml.load(text, _loader()) or {}
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} must hold key: value lines")
    if _endless(found, set(), set()):
        raise ConfigError(f"{path} has an alias inside of what it stands for; write the values out")
    return found


def _endless(value: Any, above: set[int], seen: set[int]) -> bool:
    """Return whether a value is inside itself; `above` are those that hold it, `seen` those that are known."""
    if not isinstance(value, Mapping | list) or id(value) in seen:
        return id(value) in above
    seen.add(id(value))
    parts = value.values() if isinstance(value, Mapping) else value
    return any(_endless(part, above | {id(value)}, seen) for part in parts)


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"line {node.start_mark.line + 1}: the key {twice!r} is given twice")
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            if odd := [key for key in found if not isinstance(key, str)]:
                raise ValueError(f"line {node.start_mark.line + 1}: the key {odd[0]!r} is no word")
            return found

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    for tag, pattern in _NUMBERS.items():
        Loader.add_implicit_resolver(tag, re.compile(f"(?:{pattern})$"), list("-+.0123456789"))
    return Loader
