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
_SIZES = {"nano", "tiny", "mini", "small", "base", "medium", "large", "huge", "xl", "xxl"}
OWNER = re.compile(r".*/(?=[A-Za-z])")
"""What stands before the name of a model on Hugging Face; nothing of "ViT-B/16"."""
LISTED = (
    *("schemes", "compressors", "memories", "models", "datasets", "workloads", "clusters", "devices", "links"),
    *("experiments", "presets", "engines", "collectives", "published"),
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

    One that differs in case, punctuation and the order of letters alone; else those of which one begins with the other;
    else the nearest in spelling. A name with other numbers, or of another size, is another thing: it is never proposed
    for its spelling. Nor is one that begins with another letter, unless nearly all letters are the same.
    """
    size = _size(word)
    names = [name for name in choices if not size or _size(name) in ("", size)]
    said = plain(OWNER.sub("", word))
    if same := [name for name in names if plain(name) == said]:
        return same[:1]
    numbers = sorted(re.findall(r"\d", word))
    alike = {plain(name): name for name in names if sorted(re.findall(r"\d", name)) == numbers}
    if swapped := [name for letters, name in alike.items() if sorted(letters) == sorted(said)]:
        return swapped[:1]
    if close := difflib.get_close_matches(said, alike, n=1, cutoff=0.9):
        return [alike[close[0]]]
    long = [name for name in names if min(len(said), len(plain(name))) > 2]
    begin = [name for name in long if plain(name).startswith(said)]
    ends = [
        name for name in long if said.startswith(plain(name)) or (len(plain(name)) > 3 and said.endswith(plain(name)))
    ]
    if not begin and (begin := [name for name in ends if _size(name) == size]):
        begin = (numbers and [name for name in begin if plain(name) in alike]) or begin
    if begin:
        return sorted(begin, key=lambda name: (abs(len(name) - len(word)), name))[:_MOST_NEAR]
    if len(said) > 3 and (of := [name for name in long if said in re.split(r"[^a-z0-9]+", name.lower())]):
        return sorted(of, key=lambda name: (len(name), name))[:_MOST_NEAR]
    first = {letters: name for letters, name in alike.items() if letters[:1] == said[:1]}
    close = difflib.get_close_matches(said, first, n=1, cutoff=0.66)
    if close := close or difflib.get_close_matches(said, alike, n=1, cutoff=0.85):
        return [alike[close[0]]]
    family = re.match(r"[a-z]{4}", said)  # llama_70b: there are others
    kin = [name for name in names if family and numbers and plain(name).startswith(family[0])]
    return sorted(kin, key=lambda name: -difflib.SequenceMatcher(None, said, plain(name)).ratio())[:_MOST_NEAR]


def plain(word: str) -> str:
    """Return the letters and digits of a name, in lower case: how it is compared."""
    return "".join(filter(str.isalnum, word.lower()))


def _size(word: str) -> str:
    return next((part for part in re.split(r"[^a-z]+", word.lower()) if part in _SIZES), "")


def unknown(
    kind: str, word: str, choices: Iterable[str], others: Mapping[str, str] = MappingProxyType({}), nearest_of: str = ""
) -> ConfigError:
    """Return the error for a name that is none of `choices`, naming what is near, else what lists them.

    `others`: what people call some of the choices, and what to write; a colon in it: a sentence that says so itself.
    `nearest_of`: what there is of each kind.
    """
    names, digits = sorted(choices), re.findall(r"\d", word)
    called = {plain(other): name for other, name in others.items() if re.findall(r"\d", other) == digits}
    meant = called.get(plain(word), "")
    found = [] if meant else near(word, names)
    if not found and not meant and (slip := difflib.get_close_matches(plain(word), called, n=1, cutoff=0.85)):
        meant = called[slip[0]]
    if ": " in meant:
        hint = meant
    elif meant or len(found) == 1:
        hint = f"did you mean {(meant or found[0])!r}?"
    elif found:
        hint = f"did you mean one of {', '.join(found)}?"
    else:
        hint = _all_of(kind, names) or (f"choose one of: {some_of(names)}" if names else "there are none")
        hint = f"there are {nearest_of}; {hint}" if nearest_of else hint
    return ConfigError(f"unknown {kind} {word!r}; {hint}")


def some_of(names: Sequence[str]) -> str:
    """Return names in a row; after the tenth, how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


def _all_of(kind: str, names: Sequence[str]) -> str:
    plural = {"memory": "memories", "kind of link": "links", "command": "-h", "kind": "list -h"}.get(kind, f"{kind}s")
    where = f"ssfx {plural}" if plural.endswith("-h") else f"ssfx list {plural}" if plural in LISTED else ""
    return f"{where} has all {len(names)}" if where and len(names) > _MOST_NAMES else ""
