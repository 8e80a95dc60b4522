"""How many more steps than dense training a method needs, as recorded runs say: what a quality of `auto` rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir

Quality = Literal["dense", "strict", "normal", "loose"]

MORE_STEPS: dict[Quality, float] = {"strict": 0.02, "normal": 0.05, "loose": 0.10}
"""How many more steps than dense training, as a share, a method may need."""
TRAIN_STEPS = 10_000
"""Steps of dense training that a quality is about, where nobody says how many."""
MOST_UNREACHED = 0.5
"""Share of levels that were never reached above which those that were say nothing of the method."""


@dataclass(frozen=True)
class Needed:
    """More steps than dense training, as a share; None where the runs give none. `source` says which runs, in words.

    `interval`: of 95 % over runs, None of too few.
    """

    share: float | None
    source: str
    interval: tuple[float, float] | None = None

    def within(self, limit: float) -> bool:
        """Return whether the method is recorded to need no more than the share `limit`."""
        return self.share is not None and self.share <= limit

    def __str__(self) -> str:
        """Return the share and its source in words."""
        if self.share is None:
            return self.source
        between = "" if self.interval is None else " ({:+.0%} to {:+.0%})".format(*self.interval)
        return f"{self.share:+.0%}{between} steps, {self.source}"


@cache
def measured_steps() -> tuple[dict[str, Any], ...]:
    """Return what the recorded runs say of each method; the harness writes the file."""
    return tuple(read(data_dir() / "method_steps.json", loads)["methods"])


@cache
def scheme_laws() -> tuple[dict[str, Any], ...]:
    """Return the laws of schemes that are no single method: scheme, compressor, density and `long` as of a method."""
    return tuple(read(data_dir() / "method_steps.json", loads)["schemes"])


def needed(row: Mapping[str, Any], train_steps: int = TRAIN_STEPS) -> Needed:
    """Return what a method of the file needs in a training of so many dense steps.

    Long runs come first: a delay over the steps, and a factor; a delay below none counts as none. Where they give no
    interval, or are of one seed, it is that of the worst run. Without long runs it is what short tasks needed, whatever
    the length of training.
    """
    law = row["long"]
    if law is None:
        if row["more_steps"] is None:
            return Needed(None, "not every run reached its target in short tasks")
        return Needed(row["more_steps"], "short tasks")
    if law["unreached"] > MOST_UNREACHED:
        return Needed(None, f"long runs never reached {law['unreached']:.0%} of the quality of dense training")
    if law["factor_interval"] is None or law["seeds"] < 2:
        of = f"one seed, the worst of {len(law['each'])}" if len(law["each"]) > 1 else "a single run"
        return Needed(
            max(_at(delay_steps, factor, train_steps) for delay_steps, factor in law["each"]), f"long runs ({of})"
        )
    low, high = (_at(law["delay_steps"], factor, train_steps) for factor in law["factor_interval"])
    return Needed(_at(law["delay_steps"], law["factor"], train_steps), "long runs", (low, high))


def kept_back_shares(quality: Quality, train_steps: int = TRAIN_STEPS) -> list[float]:
    """Return what the methods that a quality allows kept back in their recorded runs, where it was measured, ascending.

    Shares of a gradient's norm, each of the task on which it was most.
    """
    if quality == "dense":
        return []
    known = {row["kept_back"] for row in measured_steps() if needed(row, train_steps).within(MORE_STEPS[quality])}
    return sorted(share for share in known if share is not None)


def _at(delay_steps: float, factor: float, train_steps: int) -> float:
    return max(delay_steps, 0.0) / train_steps + factor
