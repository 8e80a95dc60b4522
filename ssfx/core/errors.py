"""Errors a user can cause, each one line that names what is wrong and the nearest thing that works."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

REQUEUE_EXIT_CODE = 75
"""What a command exits with after SIGUSR1: it stopped at a checkpoint, and the same command goes on from there. The
number is EX_TEMPFAIL of sysexits.h, "try again later"."""


_MOST_NAMES = 10
_MOST_NEAR = 6
LISTED = (
    "schemes",
    "compressors",
    "memories",
    "models",
    "datasets",
    "workloads",
    "clusters",
    "devices",
    "links",
    "experiments",
    "presets",
    "engines",
    "collectives",
    "published",
)
"""What `ssfx list` lists, in its order."""


class SsfxError(Exception):
    """Something the user can act on; the command line prints its text alone and exits with `exit_code`."""

    exit_code = 1


class ConfigError(SsfxError):
    """An unknown key, a misspelt value or a combination that cannot work; raised before anything is started."""

    exit_code = 2


class RunError(SsfxError):
    """A run that started and could not finish: a dead worker, a hang, a full disk, a corrupt file."""

    exit_code = 1


class RequeueError(RunError):
    """Runs that SIGUSR1 stopped at a checkpoint, or before they began: nothing failed, and nothing is finished."""

    exit_code = REQUEUE_EXIT_CODE


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` resembles, the first of several; None where there is none. See `near`."""
    return next(iter(near(word, choices)), None)


def near(word: str, choices: Iterable[str]) -> list[str]:
    """Return the choices that `word` may mean, the likeliest first.

    One that differs in case and punctuation alone; else those of which one begins with the other; else the nearest in
    spelling. A name with other numbers is another thing, so it is never proposed for its spelling.
    """
    names, said = list(choices), _plain(word.rpartition("/")[2])
    if same := [name for name in names if _plain(name) == said]:
        return same[:1]
    numbers = sorted(re.findall(r"\d", word))
    alike = {_plain(name): name for name in names if sorted(re.findall(r"\d", name)) == numbers}
    if close := difflib.get_close_matches(said, alike, n=1, cutoff=0.9):
        return [alike[close[0]]]
    begin = [name for name in names if min(len(said), len(_plain(name))) > 2 and _begins(said, _plain(name))]
    if begin:
        begin = (numbers and [name for name in begin if _plain(name) in alike]) or begin
        return sorted(begin, key=lambda name: (abs(len(name) - len(word)), name))[:_MOST_NEAR]
    if close := difflib.get_close_matches(said, alike, n=1, cutoff=0.6):
        return [alike[close[0]]]
    family = re.match(r"[a-z]{4}", said)  # llama_70b: there are others
    kin = [name for name in names if family and numbers and _plain(name).startswith(family[0])]
    return sorted(kin, key=lambda name: -difflib.SequenceMatcher(None, said, _plain(name)).ratio())[:_MOST_NEAR]


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def unknown(
    kind: str, word: str, choices: Iterable[str], others: Mapping[str, str] = MappingProxyType({})
) -> ConfigError:
    """Return the error for a name that is none of `choices`, naming what is near, else what lists them.

    `others`: what people call some of the choices, and what to write.
    """
    names = sorted(choices)
    meant = others.get(word.lower())
    found = [] if meant else near(word, names)
    if meant or len(found) == 1:
        hint = f"did you mean {(meant or found[0])!r}?"
    elif found:
        hint = f"did you mean one of {', '.join(found)}?"
    else:
        hint = _all_of(kind, names) or (f"choose one of: {some_of(names)}" if names else "there are none")
    return ConfigError(f"unknown {kind} {word!r}; {hint}")


def some_of(names: Sequence[str]) -> str:
    """Return names in a row; after the tenth, how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


def _all_of(kind: str, names: Sequence[str]) -> str:
    plural = {"memory": "memories", "kind of link": "links"}.get(kind, f"{kind}s")
    return f"ssfx list {plural} has all {len(names)}" if len(names) > _MOST_NAMES and plural in LISTED else ""
