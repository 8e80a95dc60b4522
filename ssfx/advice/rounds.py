"""Recorded quality of rounds, and which of it holds: ssfx/data/rounds_quality.json.

`python -m ssfx.lab.calibration.rounds_quality` writes the file from the rows of experiment=local_updates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.typed import typed
from ssfx.planning.rounds import Rounds
from ssfx.schemes.search.recorded_network import Network, batch_text

FILE = "rounds_quality.json"
HOLDS = 2.0
"""A record holds where steps of a round, replicas, and tokens of a replica and step are within this factor."""


@dataclass(frozen=True)
class RoundsRecord:
    """`more_percent`: the final perplexity, or error, over that of dense training on the same tokens, by seed.

    `times`: the steps to what dense training reaches over its steps, by seed; `at_least`: half of that was not reached.
    `ranks` replicas had `batch` tokens (images) a step each; `options` are those that differ from the scheme's.
    """

    scheme: str
    options: str
    every: int
    ranks: int
    batch: int
    family: str
    optimizer: str
    model: str
    more_percent: tuple[float, ...]
    times: tuple[float, ...]
    at_least: bool

    @property
    def text(self) -> str:
        """The record in words."""
        ends = " to ".join(dict.fromkeys(f"{end(self.more_percent):+.1f} %" for end in (min, max)))
        ends += f", {'over ' if self.at_least else ''}{max(self.times):.2g}x the steps,"
        what = f"{self.options}, " if self.options else ""
        return (
            f"{ends} at {what}every={self.every} on {self.ranks} ranks of {batch_text(self.family, self.batch)} "
            f"({self.model})"
        )


def records() -> list[RoundsRecord]:
    """Return all of the file."""
    rows = read(data_dir() / FILE, loads)
    return [typed(RoundsRecord, row) for row in rows]


def holding(
    scheme: str, rounds: Rounds, network: Network, ranks: int, among: Iterable[RoundsRecord] | None = None
) -> list[RoundsRecord]:
    """Return the records of `scheme` that hold for a network whose rank has its batch; of so many ranks in all.

    Small batches never speak for large ones: `HOLDS`. A network of unknown batch has none.
    """
    size = rounds.ranks_per_group
    batch = (network.batch or 0) * size
    return [
        one
        for one in (records() if among is None else among)
        if (one.scheme, one.family, one.optimizer) == (scheme, network.family, network.optimizer)
        and all(
            there <= HOLDS * here and here <= HOLDS * there
            for there, here in ((one.every, rounds.every), (one.ranks, ranks // size), (one.batch, batch))
        )
    ]
