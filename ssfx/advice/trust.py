"""How far a simulated time can be trusted, as validation found it for what sends alike, on systems of the same kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssfx.core.files import loads, read
from ssfx.core.origin import Kind

GROUPS: dict[Kind, str] = {
    "measured": "recorded",
    "emulated": "recorded",
    "published": "published",
    "nominal": "published",
    "fitted": "published",
}
"""Kind of a system's origin -> the validation group whose systems are of that kind, or most like it."""

BORROWED: tuple[Kind, ...] = ("nominal", "fitted")
"""Kinds without a scored system: all of the published group have published costs."""


FEWEST = 5
"""Comparisons without which there is no error bar."""


@dataclass(frozen=True)
class Trust:
    """`mean` and `max` of |predicted / actual - 1| over `count` predictions of a validation group.

    `borrowed`: its systems are of another kind than the one that it is to be trusted for. `sent` and `network`: the way
    of sending and the kind of network that it is asked for; empty for the group as a whole. `few`: how many of its
    comparisons are of these, where that is too few for a bar of their own and the others stand for them; else None.
    `aside`: in words, the steps that a whole group leaves out, and `left_out` how many; empty where it has all.
    """

    group: str
    mean: float
    max: float
    count: int
    borrowed: bool = False
    sent: str = ""
    network: str = ""
    few: int | None = None
    aside: str = ""
    left_out: int = 0

    @property
    def said(self) -> str:
        """In words: how far off, by how many comparisons, and how many there are of what is asked about."""
        of = f" of {self.sent} {f'on {self.network}'.removeprefix('on GPUs ')}" if self.sent else ""
        off = f"{self.mean:.0%} off on average, at worst {self.max:.0%}"
        if self.few is None:
            return f"{off} ({self.count} steps{of or f' of the {self.group} group{self.aside}'})"
        if self.few == self.count:
            return f"{off} ({self.count} steps{of}, too few for an error bar)"
        all_of = f" of {self.count + self.left_out}" if self.left_out else ""
        count = ("none", "one", str(self.few))[min(self.few, 2)]
        return f"{off} ({self.count}{all_of} {self.group} steps); {count}{of}"


def trust_in(kind: Kind, path: Path | None = None) -> Trust | None:
    """Return the scores of the group of a kind of system, which say when they are borrowed; None when there are none.

    They are read from the package's data/validation.json, {group: {mean, max, count, aside, ways}}, or from `path`.
    """
    group, scores = GROUPS.get(kind, ""), _scores(path)
    return _whole(scores, group, kind) if group in scores else None


def _whole(scores: Mapping[str, Mapping[str, Any]], group: str, kind: Kind) -> Trust:
    one = scores[group]
    aside = (
        f" but {own['count']} of {paper} (up to {own['max']:.0%} off)" for paper, own in one.get("aside", {}).items()
    )
    left = sum(own["count"] for own in one.get("aside", {}).values())
    return Trust(group, one["mean"], one["max"], one["count"], kind in BORROWED, aside="".join(aside), left_out=left)


def trust_in_sending(kind: Kind, ways: Sequence[str], network: str, path: Path | None = None) -> Trust | None:
    """Return the scores of a way of sending on a kind of network, for a kind of system; of several the most off.

    Fewer than FEWEST comparisons on that very network are no error bar: then it is that of the whole group, unless the
    few are further off. None where one of the ways was never scored, on no network.
    """
    scores = _scores(path)
    found = [_on(scores, GROUPS.get(kind, ""), way, network, kind) for way in ways]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.mean) if known and len(known) == len(found) else None


def _on(scores: Mapping[str, Mapping[str, Any]], group: str, way: str, network: str, kind: Kind) -> Trust | None:
    if not any(one["sent"] == way for content in scores.values() for one in content.get("ways", ())):
        return None
    there = [
        Trust(name, one["mean"], one["max"], one["count"], kind in BORROWED or name != group, way, network)
        for name, content in scores.items()
        for one in content.get("ways", ())
        if (one["sent"], one["network"]) == (way, network)
    ]
    own = max(there, key=lambda one: (one.group == group, one.count), default=None)
    if own is not None and own.count >= FEWEST:
        return own
    if group not in scores:
        return own
    few, whole = own.count if own else 0, _whole(scores, group, kind)
    if own is not None and own.mean > whole.mean:
        return replace(own, few=few)
    return replace(whole, sent=way, network=network, few=few)


def _scores(path: Path | None) -> dict[str, dict[str, Any]]:
    path = path or Path(__file__).parents[1] / "data" / "validation.json"
    return read(path, _plain) if path.exists() else {}


def _plain(text: str) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in loads(text).items() if isinstance(one, dict)}
