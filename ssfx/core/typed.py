"""From what JSON holds to dataclasses: every value has the type that its field says, or a TypeError names the field."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ssfx.core.errors import unknown

T = TypeVar("T")

MOST = 1e18
"""Numbers of files are less: a second, a byte or an element beyond it is a slip, and sums of such numbers overflow."""


def typed(kind: type[T], raw: Any) -> T:
    """Return the dataclass `kind` of a JSON object, those in its fields likewise; numbers are as they were written.

    TypeError for a field that is unknown or of another type; what the dataclass raises itself is left alone.
    """
    found: T = _typed(kind, raw, "")
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(hint: Any, raw: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _dataclass(hint, raw, where)
    if origin in (Union, UnionType):
        if raw is None and type(None) in args:
            return None
        return _typed(next(one for one in args if one is not type(None)), raw, where)
    if origin is Literal:
        if not any(raw == one and type(raw) is type(one) for one in args):
            raise TypeError(f"{where} must be one of {', '.join(map(str, args))}, got {_short(raw)}")
        return raw
    if origin is tuple:
        return _tuple(args, raw, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(raw, Mapping):
            raise TypeError(f"{where} must be an object, got {_short(raw)}")
        return {str(key): _typed(args[1], value, f"{where}.{key}") for key, value in raw.items()}
    return _plain(hint, raw, where)


def _dataclass(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, Mapping):
        raise TypeError(f"{where or 'it'} must be an object, got {_short(raw)}")
    hints = _hints(kind)
    names = [one.name for one in fields(kind)]
    if odd := [key for key in raw if key not in names]:
        raise TypeError(f"{unknown(f'key under {where}' if where else 'key', str(odd[0]), names)}")
    if lacking := [one.name for one in fields(kind) if one.name not in raw and _must(one)]:
        raise TypeError(f"{where or 'it'} has no {', '.join(lacking)}")
    return kind(**{key: _typed(hints[key], value, f"{where}.{key}".lstrip(".")) for key, value in raw.items()})


def _must(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _tuple(args: tuple[Any, ...], raw: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(raw, list | tuple):
        raise TypeError(f"{where} must be a list, got {_short(raw)}")
    if len(args) == 2 and args[1] is ...:
        return tuple(_typed(args[0], one, f"{where}[{i}]") for i, one in enumerate(raw))
    if len(args) != len(raw):
        raise TypeError(f"{where} must have {len(args)} elements, got {len(raw)}")
    return tuple(_typed(hint, one, f"{where}[{i}]") for i, (hint, one) in enumerate(zip(args, raw, strict=True)))


def _plain(hint: Any, raw: Any, where: str) -> Any:
    """Return a text, a switch or a number; a whole number stands for any."""
    kinds = (int, float) if hint is float else hint
    if hint is Any or (isinstance(raw, kinds) and isinstance(raw, bool) == (hint is bool)):
        if hint in (int, float) and not -MOST < raw < MOST:
            raise TypeError(f"{where} must be a number below {MOST:g}, got {_short(raw)}")
        return raw
    raise TypeError(f"{where} must be of type {hint.__name__}, got {_short(raw)}")


def _short(raw: Any) -> str:
    if isinstance(raw, list | tuple | Mapping):
        return f"{type(raw).__name__} of {len(raw)}"
    return repr(raw)[:60]
