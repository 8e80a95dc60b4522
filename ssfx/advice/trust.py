"""How far a simulated time can be trusted, as validation found it for what sends alike, on systems of the same kind."""

from collections.abc import Iterable, Mapping, Sequence
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
_SENT = {"ssfusion": {"gathered selections"}}
"""What methods of a paper send of which no step is scored."""


@dataclass(frozen=True)
class Trust:
    """`mean` and `max` of |predicted / actual - 1| over `count` predictions of a validation group.

    `borrowed`: its systems are of another kind than the one that it is to be trusted for. `sent` and `network`: the way
    of sending and the kind of network that it is asked for; empty for the group as a whole. `few`: how many of its
    comparisons are of both, where that is too few for a bar of their own and others stand for them: those that send so
    on other networks (`alike`), or the whole group; else None.
    """

    group: str
    mean: float
    max: float
    count: int
    borrowed: bool = False
    sent: str = ""
    network: str = ""
    few: int | None = None
    alike: bool = False

    @property
    def said(self) -> str:
        """In words: how far off, by how many comparisons, and how many there are of what is asked about."""
        where = f"on {self.network}".removeprefix("on GPUs ")
        off = f"{self.mean:.0%} off on average, at worst {self.max:.0%}"
        if self.few is None:
            return f"{off} ({self.count} steps of {f'{self.sent} {where}' if self.sent else f'the {self.group} group'})"
        if self.few == self.count:
            return f"{off} ({self.count} steps of {self.sent} {where}, too few for an error bar)"
        count = ("none", "one", str(self.few))[min(self.few, 2)]
        if self.alike:
            return f"{off} ({self.count} steps of {self.sent}, {count} {where})"
        return f"{off} ({self.count} {self.group} steps); {count} of {self.sent} {where}"


def trust_in(kind: Kind, path: Path | None = None) -> Trust | None:
    """Return the scores of the group of a kind of system, which say when they are borrowed; None when there are none.

    They are read from the package's data/validation.json, {group: {mean, max, count, ways}}, or from `path`.
    """
    group, scores = GROUPS.get(kind, ""), _scores(path)
    return _pooled([scores[group]], group, kind in BORROWED) if group in scores else None


def trust_besides(kind: Kind, paper: str, path: Path | None = None) -> Trust | None:
    """Return the scores by which a claim of `paper` is judged: of other sources' steps that send as its methods do.

    None where no other source's step sends so.
    """
    group = GROUPS.get(kind, "")
    ways = _scores(path).get(group, {}).get("ways", ())
    sent = {one["sent"] for one in ways if one.get("paper") == paper} or _SENT.get(paper, set())
    return _pooled([one for one in ways if one["sent"] in sent and one.get("paper") != paper], group, kind in BORROWED)


def trust_in_sending(kind: Kind, ways: Sequence[str], network: str, path: Path | None = None) -> Trust | None:
    """Return the scores of a way of sending on a kind of network, for a kind of system; of several the most off.

    Fewer than FEWEST comparisons on that very network are no error bar. Then it is that of steps which send so on other
    networks, or of the whole group where these are too few; unless the few are further off. None where one of the ways
    was never scored, on no network.
    """
    scores = _scores(path)
    found = [_on(scores, GROUPS.get(kind, ""), way, network, kind) for way in ways]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.mean) if known and len(known) == len(found) else None


def _on(scores: Mapping[str, Mapping[str, Any]], group: str, way: str, network: str, kind: Kind) -> Trust | None:
    alike = {name: [one for one in content.get("ways", ()) if one["sent"] == way] for name, content in scores.items()}
    if not any(alike.values()):
        return None

    def of(name: str, chosen: Iterable[Mapping[str, Any]]) -> Trust | None:
        found = _pooled(chosen, name, kind in BORROWED or name != group)
        return found and replace(found, sent=way, network=network)

    there = [of(name, (one for one in own if one["network"] == network)) for name, own in alike.items()]
    own = max(filter(None, there), key=lambda one: (one.group == group, one.count), default=None)
    if own is not None and own.count >= FEWEST:
        return own
    others = of(group, alike.get(group, ()))
    if others is None or others.count < FEWEST:
        others = of(group, [scores[group]]) if group in scores else None
    else:
        others = replace(others, alike=True)
    if others is None:
        return own
    few = own.count if own else 0
    return replace(own if own is not None and own.mean > others.mean else others, few=few)


def _pooled(scores: Iterable[Mapping[str, Any]], group: str, borrowed: bool) -> Trust | None:
    """Return several scores as one, None of none."""
    several = list(scores)
    count = sum(one["count"] for one in several)
    if not count:
        return None
    mean = sum(one["mean"] * one["count"] for one in several) / count
    return Trust(group, mean, max(one["max"] for one in several), count, borrowed)


def _scores(path: Path | None) -> dict[str, dict[str, Any]]:
    path = path or Path(__file__).parents[1] / "data" / "validation.json"
    return read(path, _plain) if path.exists() else {}


def _plain(text: str) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in loads(text).items() if isinstance(one, dict)}
