"""Errors a user can cause, each one line that names what is wrong and the nearest thing that works."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

REQUEUE_EXIT_CODE = 75
"""What a command exits with after SIGUSR1: it stopped at a checkpoint, and the same command goes on from there. The
number is EX_TEMPFAIL of sysexits.h, "try again later"."""


_MOST_NAMES = 10


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
    """Return the choice closest in spelling to `word`, or None when nothing resembles it."""
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return found[0] if found else None


def unknown(kind: str, word: str, choices: Iterable[str]) -> ConfigError:
    """Return the error for a name that is none of `choices`, naming the nearest one, or the first when none is near."""
    choices = sorted(choices)
    close = nearest(word, choices)
    hint = f"did you mean {close!r}?" if close else "choose one of: " + some_of(choices)
    return ConfigError(f"unknown {kind} {word!r}; {hint}")


def some_of(names: Sequence[str]) -> str:
    """Return names in a row; after the tenth, how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")
