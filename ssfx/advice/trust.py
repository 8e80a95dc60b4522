"""How far a simulated time can be trusted, as validation found it for systems of the same kind or the nearest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ssfx.core.digests import loads
from ssfx.core.files import read
from ssfx.core.origin import Kind

GROUPS: dict[Kind, str] = {
    "measured": "recorded", "emulated": "recorded", "published": "published", "nominal": "published",
    "fitted": "published",
}  # fmt: skip
"""Kind of a system's origin -> the validation group whose systems are of that kind, or most like it."""

BORROWED: tuple[Kind, ...] = ("nominal", "fitted")
"""Kinds of which no system was scored: all of the published group have published costs."""


@dataclass(frozen=True)
class Trust:
    """Mean and maximum |predicted / actual - 1| over `count` predictions of a validation group.

    `borrowed`: its systems are of another kind than the one that it is to be trusted for.
    """

    group: str
    mean: float
    maximum: float
    count: int
    borrowed: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.mean <= self.maximum:
            raise ValueError(f"group {self.group}: a mean error lies between 0 and the maximum")


def trust_in(kind: Kind, path: Path | None = None) -> Trust | None:
    """Return the scores of the group of a kind of system, which say when they are borrowed; None when there are none.

    They are read from the package's data/validation.json, {group: {mean, max, count}}, or from `path`.
    """
    path = path or Path(__file__).parents[1] / "data" / "validation.json"
    group = GROUPS.get(kind, "")

    def trust(text: str) -> Trust | None:
        found = loads(text).get(group)
        return found and Trust(group, found["mean"], found["max"], found["count"], kind in BORROWED)

    return read(path, trust) if path.exists() else None
