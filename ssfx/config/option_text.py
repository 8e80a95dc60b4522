"""What a registered component is, takes and means, as text: its declaration, its options and their docstrings."""

import inspect
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ssfx.collectives import collectives


def component_text(entry: Any) -> str:
    """Return summary, source, a line `name=default (what may be given)` an option, and what docstrings say of them.

    An option of a scheme may be one of its collective's, which then says what it means.
    """
    held = getattr(entry, "defaults", None) or getattr(entry, "options", None)
    source = getattr(entry, "source", "") or getattr(getattr(entry, "cls", None), "source", "")
    parts = [f"{entry.name}: {entry.summary}." + f" Source: {source}." * bool(source)]
    if held is None or not fields(held):
        return f"{parts[0]}\n\nNo options."
    may_be = {name: _type(hint) for name, hint in get_type_hints(type(held)).items()}
    lines = [f"    {one.name}={value(getattr(held, one.name))} ({may_be[one.name]})" for one in fields(held)]
    carried = [type(collectives[name].options) for name in getattr(entry, "collectives", ())]
    owners = [*type(held).__mro__, *(one for one in carried if may_be.keys() & get_type_hints(one).keys())]
    said = [inspect.cleandoc(owner.__doc__ or "") for owner in owners if "__annotations__" in vars(owner)]
    return "\n\n".join([*parts, "\n".join(lines), *filter(None, said)])


def value(default: Any) -> str:
    """Return a default as it would be typed."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    if isinstance(default, float):
        return f"{default:.6g}"
    return str(default) if default != "" else '""'


def _type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if args := get_args(hint):
        return " or ".join(map(_type, args))
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}.get(hint, "null")
