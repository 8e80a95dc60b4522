"""Spec: "name" or "name(option=value,...)", the text by which plans, rows and users refer to a component or cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ssfx.core.errors import ConfigError

_SPEC = re.compile(r"\s*(?P<name>[^\s()]+|[^()]*[/.][^()]*?)\s*(?:\((?P<options>[^()]*)\)\s*)?")


@dataclass(frozen=True)
class Spec:
    """A name, which may be the path of a file, and options in the order written; parsed ones are text."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: object, kind: str = "component") -> Spec:
        """Return what `text` spells; ConfigError, one line that calls it a `kind`, for a text that is no spec."""
        match = _SPEC.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(f"{text!r} is not a {kind}; write a name, or name(option=value)")
        options: dict[str, str] = {}
        inside = (match["options"] or "").strip()
        for part in inside.split(",") if inside else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (key and equals and value):
                raise ConfigError(f"{text!r}: {part.strip()!r} is not option=value")
            if key in options:
                raise ConfigError(f"{text!r} gives option {key} twice; keep one of them")
            options[key] = value
        return cls(match["name"], options)

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name


@lru_cache(maxsize=1 << 12)
def name_of(spec: str) -> str:
    """Return the name in a spec, without its options."""
    return spec.partition("(")[0].strip()
