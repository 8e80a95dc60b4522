"""How far a simulated time can be trusted, as validation found it for what sends alike, on systems of the same kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssfx.core.files import loads, read
from ssfx.core.origin import Kind

GROUPS: dict[Kind, str] = {
    "measured": "recorded", "emulated": "recorded", "published": "published", "nominal": "published",
    "fitted": "published",
}  # fmt: skip
"""Kind of a system's origin -> the validation group whose systems are of that kind, or most like it."""

BORROWED: tuple[Kind, ...] = ("nominal", "fitted")
"""Kinds without a scored system: all of the published group have published costs."""


@dataclass(frozen=True)
class Trust:
    """Mean and maximum |predicted / actual - 1| over `count` predictions of a validation group.

    `borrowed`: its systems are of another kind than the one that it is to be trusted for. `sent` and `network`: the way
    of sending and the kind of network that were scored; empty for the group as a whole.
    """

    group: str
    mean: float
    maximum: float
    count: int
    borrowed: bool = False
    sent: str = ""
    network: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.mean <= self.maximum:
            raise ValueError(f"group {self.group}: a mean error lies between 0 and the maximum")


def trust_in(kind: Kind, path: Path | None = None) -> Trust | None:
    """Return the scores of the group of a kind of system, which say when they are borrowed; None when there are none.

    They are read from the package's data/validation.json, {group: {mean, max, count, ways}}, or from `path`.
    """
    group = GROUPS.get(kind, "")
    found = _scores(path).get(group)
    return Trust(group, found["mean"], found["max"], found["count"], kind in BORROWED) if found else None


def trust_in_sending(kind: Kind, ways: Sequence[str], network: str, path: Path | None = None) -> Trust | None:
    """Return the scores of a way of sending on a kind of network, for a kind of system.

    Of several ways it is the one that is most off. Where a way was not scored on that network, its scores on another
    one stand for it, of the same group first; None where one of the ways was never scored.
    """
    scores, group = _scores(path), GROUPS.get(kind, "")
    found = [_nearest(scores, group, way, network, kind in BORROWED) for way in ways]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.mean) if known and len(known) == len(found) else None


def _nearest(
    scores: Mapping[str, Mapping[str, Any]], group: str, way: str, network: str, borrowed: bool
) -> Trust | None:
    near = [
        Trust(name, one["mean"], one["max"], one["count"], borrowed or name != group, one["sent"], one["network"])
        for name, content in scores.items()
        for one in content.get("ways", ())
        if one["sent"] == way
    ]
    return max(near, key=lambda one: (one.network == network, one.group == group, one.count), default=None)


def _scores(path: Path | None) -> dict[str, dict[str, Any]]:
    path = path or Path(__file__).parents[1] / "data" / "validation.json"
    return read(path, _plain) if path.exists() else {}


def _plain(text: str) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in loads(text).items() if isinstance(one, dict)}
