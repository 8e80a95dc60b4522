"""How many more steps than dense training a method needs on a network, with an interval: what a quality rests on.

    log(steps over dense) = curve of the method's class(log compression)
                            x term of the class for the family and optimizer
                            x (batch / usual batch) ^ exponent
                            x (usual steps / steps of the training) ^ exponent of the class

The curve never falls with compression. A training of fewer steps than usual counts as usual, to which
runs of 100 steps are nearer than to the power. A longer one than any recorded counts as the longest.
`ssfx.lab.calibration.extra_steps` fits all of it to recorded runs.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from typing import Any, Literal

from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.spec import Spec
from ssfx.schemes.search.recorded_network import READERS, Network, batch_text, in_words

Quality = Literal["dense", "strict", "normal", "loose"]

MORE_STEPS: dict[Quality, float] = {"strict": 0.02, "normal": 0.05, "loose": 0.10}
"""How many more steps than dense training, as a share, a method may need."""
TRAIN_STEPS = 10_000
"""Steps of dense training that a quality is about, where their number is not given."""
BEYOND = 8
"""So many times the largest batch, or compression, that was recorded, nothing is known."""
NOISE = 0.05
"""Seeds alone differ by so much, in logarithms: errors are relative to what is expected and this."""
MOST = 9.0
"""Share above which a number of extra steps is not said: more than ten times as many."""
UNKNOWN = "quality unknown"
_SIZES = ("rank", "bits", "bucket", "value_dtype")
"""Options of compressors that change how far they compress, which the curve knows, and nothing else."""


@dataclass(frozen=True)
class ExtraSteps:
    """More steps than dense training, as a share, and the 80 % interval over networks; None where unknown.

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
        return f"{more(self.share)} steps (80 %: {between(self.low, self.high)}), {self.source}"


def more(share: float) -> str:
    """Return a share of extra steps in words, no number above MOST."""
    return "more than ten times as many" if share > MOST else f"{round(100 * share):+} %"


def between(low: float, high: float) -> str:
    """Return an interval of extra steps in words."""
    return f"{more(low)} to {more(high)}" if high > MOST else f"{round(100 * low):+} to {round(100 * high):+} %"


@cache
def curves() -> dict[str, Any]:
    """Return the content of the file that is fitted to recorded runs."""
    return dict(read(data_dir() / "extra_steps.json", loads))


def recorded_methods() -> list[dict[str, Any]]:
    """Return the methods of which runs are recorded: class, words, collective, compressor, density, compressor calls
    and the least compression."""
    return list(curves()["methods"])


def steps_of_method(
    network: Network, collective: str, compressor: str, density: float, calls: str, train_steps: int = TRAIN_STEPS
) -> ExtraSteps:
    """Return what a method needs in a training of so many dense steps of `network`.

    `calls`: whether "each" tensor has a compressor call of its own or calls are "joint", which matters to selections.
    """
    kind = class_of(collective, compressor)
    if kind is None:
        return _unknown(f"no run is recorded of {compressor} sent like this")
    if reason := never_recorded(network):
        return _unknown(f"no run is recorded of {reason}")
    found, ratio = curves()["classes"][kind], network.compression(compressor, density, calls)
    batch = network.ranks and network.batch and network.ranks * network.batch
    most, largest = exp(found["log_compression"][-1]), curves()["batch"]["largest"][counted_in(network.family)]
    if ratio > BEYOND * most:
        return _unknown(f"{ratio:,.0f}x is over {BEYOND} times the most that is recorded of {kind}, {most:,.0f}x")
    if batch and batch > BEYOND * largest:
        here = batch_text(network.family, batch)
        return _unknown(f"a step of {here} is over {BEYOND} times the largest that is recorded, {largest:,}")
    logs = log_steps(curves(), kind, network.family, network.optimizer, ratio, batch, train_steps)
    low, share, high = (exp(one) - 1 for one in logs)
    own, recorded = in_words(network.family, network.optimizer), curves()["steps"]
    source = (
        f"{kind}: {found['runs']} runs of {found['networks']} networks, {found['own'].get(own, 0)} of them of {own}, "
        f"over {recorded['usual']:,} to {recorded['most']:,} steps, here {train_steps:,}"
    )
    return ExtraSteps(share, low, high, source, found["runs"])


def steps_anywhere(method: Mapping[str, Any], train_steps: int) -> ExtraSteps:
    """Return what a recorded method needs at its least compression in the recorded training that needs the least."""
    logs = min(
        log_steps(curves(), method["class"], one["family"], one["optimizer"], method["compression"], None, train_steps)
        for one in curves()["trainings"]
    )
    low, share, high = (exp(one) - 1 for one in logs)
    return ExtraSteps(share, low, high, "of all recorded trainings the one that needs the fewest")


def log_steps(
    law: Mapping[str, Any], kind: str, family: str, optimizer: str, ratio: float, batch: int | None, train_steps: int
) -> tuple[float, float, float]:
    """Return the lower end, the expectation and the upper end of log(steps over dense) by curves like the file's.

    No batch: the usual one.
    """
    found, usual = law["classes"][kind], law["batch"]["usual"].get(counted_in(family))
    larger = batch / usual if batch and usual else 1.0
    curve = height(found["log_compression"], found["log_steps"], log(ratio))
    shorter = law["steps"]["usual"] / min(max(train_steps, law["steps"]["usual"]), law["steps"]["most"])
    term = found["terms"].get(in_words(family, optimizer), 1.0)
    expected = curve * term * larger ** law["batch"]["exponent"] * shorter ** found["steps_exponent"]
    low, high = (expected + error * (NOISE + expected) for error in found["interval"])
    return low, expected, high


def height(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the height of a curve through 0, straight between its points, in proportion to x beyond the last one."""
    if x >= xs[-1]:
        return ys[-1] * x / xs[-1]
    right = bisect(xs, x)
    (x0, y0) = (xs[right - 1], ys[right - 1]) if right else (0.0, 0.0)
    return y0 + (ys[right] - y0) * max(0.0, x - x0) / (xs[right] - x0)


def counted_in(family: str) -> str:
    """Return in what the batch of a family is counted."""
    return "tokens" if family in READERS else "images"


def clipping_matters(network: Network) -> bool:
    """Return whether clipping was not asked about, and all recorded runs of such networks clipped."""
    return network.clipped is None and _clipped(network) == {True}


def never_recorded(network: Network) -> str:
    """Return what was never recorded of such networks, in words; "" where something holds."""
    trainings = curves()["trainings"]
    if network.family not in {one["family"] for one in trainings}:
        return network.text
    if network.optimizer not in {one["optimizer"] for one in trainings}:
        return network.text
    return f"{network.text} without clipping" if network.clipped is False and _clipped(network) == {True} else ""


def _clipped(network: Network) -> set[bool]:
    own = (network.family, network.optimizer)
    return {one["clipped"] for one in curves()["trainings"] if (one["family"], one["optimizer"]) == own}


@cache
def class_of(collective: str, compressor: str) -> str | None:
    """Return the class of a method, None where no run is recorded of such a compressor over such a collective."""
    return _classes().get((collective, variant(compressor)))


@cache
def _classes() -> dict[tuple[str, str], str]:
    return {(one["collective"], variant(one["compressor"])): one["class"] for one in recorded_methods()}


def variant(compressor: str) -> str:
    """Return a compressor without the options that only say how far it compresses."""
    given = Spec.parse(compressor, "compressor")
    return str([given.name, sorted((name, value) for name, value in given.options.items() if name not in _SIZES)])


def _unknown(why: str) -> ExtraSteps:
    return ExtraSteps(None, None, None, f"{UNKNOWN}: {why}")
