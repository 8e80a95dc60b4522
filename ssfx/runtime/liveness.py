"""What ranks of an exchange tell each other outside of it: that they have left, that they load a state.

A rank that waits in an exchange for another one that will never come would wait for the transport's time-out, half an
hour by default. Who waits for a second looks whether there is a note.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import uuid4
from weakref import WeakSet

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError, RunError
from ssfx.runtime.agreement import difference
from ssfx.runtime.online import agree

_REFUSED = "refused"
_LOAD_ADVICE = "load on every rank what that rank saved after the same step"


class Peers:
    """The notes of one exchange; made on all ranks at the same time.

    `exchanges` counts the exchanges that this rank has ended; its owner keeps it up to date.
    """

    _all: ClassVar[WeakSet[Peers]] = WeakSet()

    def __init__(self, comm: Comm) -> None:
        self.exchanges = 0
        self._comm = comm
        self._loads = 0
        self._left = False
        self._notes = comm.notes
        self._name = f"ssfx/{agree(comm, lambda: uuid4().hex)}"
        self._process = os.getpid()
        if not Peers._all:
            atexit.unregister(_at_exit)
            atexit.register(_at_exit)
        Peers._all.add(self)

    def look(self) -> None:
        """Raise RunError if another rank will never take part in the exchange that this one waits for."""
        if (left := self._gone()) is not None:
            raise RunError(
                f"rank {left['rank']} {left['why']} after {left['exchanges']} exchanges, and rank {self._comm.rank} "
                f"waits for it in exchange {self.exchanges + 1}; give all ranks as many batches, or train inside "
                "`with sync.join():`"
            )
        load = self._read(f"load{self._loads + 1}")
        if load is not None and load["exchanges"] <= self.exchanges:
            why = "went on training and loaded no state"
            self.leave(why)
            raise RunError(
                f"rank {load['rank']} loads a state after {load['exchanges']} exchanges, and rank {self._comm.rank} "
                f"{why}; {_LOAD_ADVICE}"
            )

    def _gone(self) -> dict[str, Any] | None:
        """Return the note of the first rank that left and is missed, None if there is none."""
        if (first := self._read("left")) is None:
            return None
        notes = [first] if first["exchanges"] <= self.exchanges else map(self._note_of, range(self._comm.world_size))
        return next((note for note in notes if note is not None and note["exchanges"] <= self.exchanges), None)

    def _note_of(self, rank: int) -> dict[str, Any] | None:
        return self._read(f"left/{rank}")

    def leave(self, why: str) -> None:
        """Write for the others, once, that this rank takes part in no further exchange."""
        if not self._left:
            self._left = True
            note = {"rank": self._comm.rank, "why": why, "exchanges": self.exchanges}
            self._write(f"left/{self._comm.rank}", note)
            self._notes.write_first(f"{self._name}/left", json.dumps(note))

    def close(self, why: str) -> None:
        """Leave for good."""
        if self in Peers._all:
            Peers._all.discard(self)
            self.leave(why)

    @contextmanager
    def loading(self) -> Iterator[dict[str, str]]:
        """Return, once every rank is here, if the facts that they put in are the same.

        ConfigError on all ranks if they are not, or if one of them could not read its state. RunError if a rank goes on
        training instead, or does not come before the patience of its notes.
        """
        self._loads += 1
        note = f"load{self._loads}"
        facts: dict[str, str] = {}
        try:
            yield facts
        except ConfigError as error:
            self._write(f"{note}/{self._comm.rank}", {_REFUSED: str(error)})
            raise
        self._write(f"{note}/{self._comm.rank}", facts)
        self._write(note, {"rank": self._comm.rank, "exchanges": self.exchanges})
        everyone = [self._wait_for(f"{note}/{rank}", rank) for rank in range(self._comm.world_size)]
        for rank, others in enumerate(everyone):
            if _REFUSED in others:
                raise ConfigError(f"nothing was loaded, because rank {rank} cannot load its state: {others[_REFUSED]}")
        if text := difference(everyone):
            raise ConfigError(f"the states that ranks load do not go together: {text}; {_LOAD_ADVICE}")

    def _wait_for(self, key: str, rank: int) -> dict[str, Any]:
        end = time.monotonic() + self._notes.timeout_s
        while (note := self._read(key)) is None:
            if (left := self._note_of(rank)) is not None:
                raise RunError(f"rank {rank} {left['why']}, and rank {self._comm.rank} loads a state; {_LOAD_ADVICE}")
            if time.monotonic() > end:
                raise RunError(f"rank {rank} did not call load_state_dict; {_LOAD_ADVICE}")
            self._notes.pause()
        return note

    def _write(self, key: str, note: dict[str, Any]) -> None:
        self._notes.write(f"{self._name}/{key}", json.dumps(note))

    def _read(self, key: str) -> dict[str, Any] | None:
        text = self._notes.read(f"{self._name}/{key}")
        note: dict[str, Any] | None = json.loads(text) if text is not None else None
        return note


def _at_exit() -> None:
    raised = getattr(sys, "last_value", None)
    why = f"ended with {type(raised).__name__}" if raised is not None else "ended"
    for peers in list(Peers._all):
        if peers._process != os.getpid():  # a child that was forked
            continue
        try:
            peers.close(why)
        except Exception:  # the store may have gone first, and then the note is never read
            continue
