"""What may be typed next: keys, values and options that fit what stands before."""

from typing import Any

from ssfx.config.groups import GROUPS, OPTION_GROUPS, choices, options
from ssfx.config.schema import KEYS, TYPES, word_choices


def complete(given: list[str], incomplete: str) -> list[str]:
    """Return the completions of `incomplete` after the words `given`.

    Bash breaks words at "=", so there a key and "=" arrive as words of their own and only the value is completed.
    """
    if len(given) > 1 and given[-1] == "=":
        return _values(given[-2], incomplete)
    if given and given[-1] in (*GROUPS, *KEYS):
        return _values(given[-1], incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={word}" for word in _values(key, value)]
    keys = [key for key in _keys(incomplete, given) if key.startswith(incomplete)]
    if len(keys) == 1 and (values := _values(keys[0], "")):
        return [f"{keys[0]}={value}" for value in values]
    return [f"{key}=" for key in keys]


def _keys(incomplete: str, given: list[str]) -> list[str]:
    group, dot, _ = incomplete.partition(".")
    if dot:
        return [f"{group}.{option}" for option in _options(group, given)] if group in OPTION_GROUPS else []
    return sorted((*GROUPS, *KEYS))


def _values(key: str, incomplete: str) -> list[str]:
    head, comma, last = incomplete.rpartition(",")
    if key in GROUPS:
        words = choices(key)
    elif key in KEYS:
        words = ("false", "true") if TYPES[key] is bool else word_choices(key)
    else:
        words = ()
    return [f"{head}{comma}{word}" for word in words if word.startswith(last)]


def _options(group: str, given: list[str]) -> list[str]:
    chosen = _chosen(group, given) or list(choices(group))
    names: dict[str, Any] = {}
    for name in chosen:
        names |= options(group, name)
    return sorted(names)


def _chosen(group: str, given: list[str]) -> list[str]:
    text = "".join(f"{word}\n" for word in given).replace("\n=\n", "=")  # joins what bash broke
    for word in text.split("\n"):
        key, equals, value = word.partition("=")
        if equals and key == group:
            return [name for name in value.split(",") if name in choices(group)]
    return []
