"""What the user typed, read and checked: key=value words become a mapping from keys to one or several values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ssfx.config.groups import GROUPS, OPTION_GROUPS, check_choice, choices, options
from ssfx.config.schema import KEYS, typed
from ssfx.core.errors import ConfigError, nearest, unknown

_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*")
_NAME = re.compile(r"(?!(true|false|null|nan|inf)$)[a-z][a-z0-9_]*|[0-9]+[a-df-z][a-z0-9_]*")
_WHOLE = re.compile(r"0|[1-9][0-9]*")
_REAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?(e-?[0-9]+)?")

Request = dict[str, tuple[Any, ...]]
"""Keys in the order they were given, each with the values it shall take."""


def read(words: Iterable[str]) -> Request:
    """Return the request that `words` spell; ConfigError, one line, for anything that cannot be meant."""
    request: Request = {}
    for word in words:
        key, values = _parse(word)
        if key in request:
            raise ConfigError(f"{key} is given twice; write {key}=a,b to run both")
        request[key] = check(key, values)
    return request


def check(key: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return `values` typed for `key`; ConfigError when the key or a value does not exist."""
    group, dot, option = key.partition(".")
    if dot:
        _check_option(group, option, key)
        return tuple(values)
    if key in GROUPS:
        return tuple(None if _unset(key, value) else check_choice(key, value) for value in values)
    if key in KEYS:
        return tuple(typed(key, value) for value in values)
    raise unknown("key", key, [*GROUPS, *KEYS])


def _unset(key: str, value: Any) -> bool:
    return value is None and key in ("compressor", "memory")


def _check_option(group: str, option: str, key: str) -> None:
    if group not in OPTION_GROUPS:
        if group in (*GROUPS, *KEYS):
            raise ConfigError(f"{group} has no options, so {key} means nothing; write {group}=value")
        raise unknown("group", group, OPTION_GROUPS)
    known = {name for choice in choices(group) for name in options(group, choice)}
    if option not in known:
        raise unknown(f"option of {group}", option, known)


def _parse(word: str) -> tuple[str, tuple[Any, ...]]:
    key, equals, text = word.partition("=")
    if not equals:
        raise ConfigError(_without_equals(word))
    if not key or not text:
        raise ConfigError(f"{word!r} is not key=value; write for example density=0.05")
    if "(" in text:
        raise ConfigError(
            f"cannot read {word!r}; options are written apart, as in compressor=topk compressor.option=value"
        )
    if _KEY.fullmatch(key) and None not in (found := [_plain_value(one) for one in text.split(",")]):
        return key, tuple(found)
    return _by_grammar(word)


def _plain_value(text: str) -> str | int | float | None:
    """Return what Hydra's grammar makes of a name as they are here, or of a number without a sign; None for all else.

    That is what most words hold, and importing the grammar takes longer than simulating a step.
    """
    if _NAME.fullmatch(text):
        return text
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) and not text.isdecimal() else None


def _by_grammar(word: str) -> tuple[str, tuple[Any, ...]]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        raise ConfigError(f"cannot read {word!r}; write key=value, or key=a,b to run several") from None
    if override.type != OverrideType.CHANGE or override.package is not None:
        raise ConfigError(f"cannot read {word!r}; keys are only changed, by key=value")
    values = tuple(override.sweep_iterator()) if override.is_sweep_override() else (override.value(),)
    return override.key_or_group, tuple(_plain(value) for value in values)


def _plain(value: Any) -> Any:
    # The parser wraps quoted text; the sweep iterator returns the text of the elements.
    from hydra.core.override_parser.types import QuotedString

    return value.text if isinstance(value, QuotedString) else value


def _without_equals(word: str) -> str:
    for group in GROUPS if word not in (*GROUPS, *KEYS) else ():
        if word in choices(group):
            return f"{word!r} is not key=value; did you mean {group}={word}?"
    close = nearest(word, [*GROUPS, *KEYS])
    return f"{word!r} is not key=value; " + (f"did you mean {close}=...?" if close else "write for example scheme=ddp")
