"""What the docstrings of options classes say, option by option where a sentence begins with the name of one."""

import inspect
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

_HEAD = re.compile(r"(?P<names>`?\w+`?(?:, `?\w+`?)*)(?P<colon>:?)\s+")
_NAMED = re.compile(r"`(\w+)`")
_SENTENCE = re.compile(r"(?<=[.;])\s+")


@dataclass(frozen=True)
class Described:
    """A docstring: `each` maps options to what is said of them, `prose` is what stands before the first of them."""

    each: dict[str, str]
    prose: str


def described(cls: type) -> Described:
    """Return the docstring of an options class, cut where a sentence begins with names of options.

    "`rank` of the factors ..." is about rank, and so is what follows, up to the next such sentence; "step, stride: ..."
    is about both. Backticks count if the docstring has them there. An option of the class itself that is only named in
    another's text is sent there.
    """
    sentences = _SENTENCE.split(" ".join(inspect.cleandoc(cls.__doc__ or "").split()))
    names = {field.name for field in fields(cls)}
    heads = [_heads(sentence, names) for sentence in sentences]
    if any(head and head[0].startswith("`") for head in heads):
        heads = [head if head and head[0].startswith("`") else [] for head in heads]
    each: dict[str, str] = {}
    prose: list[str] = []
    about = ""
    for sentence, head in zip(sentences, heads, strict=True):
        text = sentence
        if head:
            about, *others = (name.strip("`") for name in head)
            each |= dict.fromkeys(others, f"see `{about}`")
            text = sentence.removeprefix(f"{', '.join(head)}: ")
        if about:
            each[about] = f"{each[about]} {text}" if about in each else text
        else:
            prose.append(text)
    each = {name: text.removesuffix(";") for name, text in each.items()}
    left = set(added(cls)) - set(each) - set(_NAMED.findall(" ".join(prose)))
    for name, text in list(each.items()):
        each |= dict.fromkeys(left & set(_NAMED.findall(text)), f"see `{name}`")
    return Described(each, re.sub(";$", ".", " ".join(prose)))


def _heads(sentence: str, names: Collection[str]) -> list[str]:
    """Return the names that a sentence begins with, as written: several only before a colon."""
    match = _HEAD.match(sentence)
    found = match["names"].split(", ") if match else []
    whole = match is not None and (match["colon"] or len(found) == 1)
    return found if whole and {name.strip("`") for name in found} <= set(names) else []


def layers(cls: type) -> list[type]:
    """Return an options class and those below it that add options."""
    return [one for one in cls.__mro__ if one is cls or vars(one).get("__annotations__")]


def added(cls: type) -> list[str]:
    """Return the options that a class has and no class below it."""
    below = {field.name for base in cls.__mro__[1:] if base is not object for field in _fields(base)}
    return [field.name for field in fields(cls) if field.name not in below]


def types(cls: type) -> dict[str, str]:
    """Return what may be given for each option, in words; the choices where there are some."""
    return {name: _type(hint) for name, hint in get_type_hints(cls).items()}


def value(default: Any) -> str:
    """Return a default as it would be typed."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    if isinstance(default, float):
        return f"{default:.6g}"
    return str(default) if default != "" else '""'


def _fields(cls: type) -> Sequence[Any]:
    return fields(cls) if hasattr(cls, "__dataclass_fields__") else ()


def _type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if args := get_args(hint):
        return " or ".join(map(_type, args))
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}.get(hint, "null")
