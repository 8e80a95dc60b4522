"""How many more steps than dense training a method needs on a network, with an interval: what a quality rests on."""

from __future__ import annotations

from dataclasses import dataclass

from ssfx.schemes.search import auto_steps
from ssfx.schemes.search.auto_steps import MORE_STEPS, TRAIN_STEPS, UNKNOWN, Quality
from ssfx.schemes.search.recorded_network import Network

__all__ = ["MORE_STEPS", "TRAIN_STEPS", "UNKNOWN", "ExtraSteps", "Quality", "steps_of_method"]


@dataclass(frozen=True)
class ExtraSteps:
    """More steps than dense training, as a share, and the 80 % interval over networks; None where nobody knows.

    `source` says what it rests on, or why it is unknown; `runs`: how many recorded runs that is.
    """

    share: float | None
    low: float | None
    high: float | None
    source: str
    runs: int = 0

    @property
    def unknown(self) -> bool:
        """True where no record holds."""
        return self.share is None

    def within(self, limit: float) -> bool:
        """Return whether the upper end of the interval is at most the share `limit`."""
        return self.high is not None and self.high <= limit

    def __str__(self) -> str:
        """Return the share, its interval and its source in words."""
        if self.share is None or self.low is None or self.high is None:
            return self.source
        between = f"80 %: {_more(self.low)} to {_more(self.high)}"
        return f"{_more(self.share)} steps ({between}), {self.source}"


def _more(share: float) -> str:
    return "more than ten times as many" if share > 9 else f"{share:+.0%}"


def steps_of_method(
    network: Network, collective: str, compressor: str, density: float, calls: str, train_steps: int = TRAIN_STEPS
) -> ExtraSteps:
    """Return what a method needs in a training of so many dense steps of `network`.

    `calls`: whether "each" tensor has a compressor call of its own or calls are "joint", which matters to selections.
    """
    found = auto_steps.steps_of_method(network, collective, compressor, density, calls, train_steps)
    return ExtraSteps(found.share, found.share, found.worst, found.source, found.runs)
