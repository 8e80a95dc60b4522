"""How many more steps than dense training a method needs, as recorded runs say: what a quality of `auto` rests on.

A record holds for networks of its family, trained by its optimizer, at its compression within a factor of two. Outside
of that nobody knows. Where some runs clip gradients and some do not, those count that train alike. Extra steps of
what keeps much of a gradient back grow with a power of the batch that was recorded, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from statistics import median
from typing import Any, Literal

from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.spec import Spec
from ssfx.schemes.search.recorded_network import Network, batch_text, in_words
from ssfx.schemes.transport import keeps_fraction

Quality = Literal["dense", "strict", "normal", "loose"]

MORE_STEPS: dict[Quality, float] = {"strict": 0.02, "normal": 0.05, "loose": 0.10}
"""How many more steps than dense training, as a share, a method may need."""
TRAIN_STEPS = 10_000
"""Steps of dense training that a quality is about, where their number is not given."""
MOST_UNREACHED = 0.5
"""Share of levels that were never reached above which those that were say nothing of the method."""
ABOUT = 2.0
"""By this factor the compression of a network may differ from the recorded one."""
BEYOND = 8
"""So many times the largest recorded batch, a bound that grows with the batch says nothing."""
UNKNOWN = "quality unknown"


@dataclass(frozen=True)
class Needed:
    """More steps than dense training, as a share; None where it is unknown, or runs missed the quality: see `source`.

    `worst`: the share of the worst run, by which a method is admitted, None where that is unknown. `runs`: how many it
    rests on.
    """

    share: float | None
    source: str
    worst: float | None = None
    runs: int = 0

    def within(self, limit: float) -> bool:
        """Return whether every recorded run of the method needed no more than the share `limit`."""
        return self.worst is not None and self.worst <= limit

    @property
    def unknown(self) -> bool:
        """True where no record holds."""
        return self.source.startswith(UNKNOWN)

    def __str__(self) -> str:
        """Return the share and its source in words."""
        if self.share is None:
            return self.source
        worst = f" (worst run {_more(self.worst)})" if self.runs else ""
        return f"{_more(self.share)} steps{worst}, {self.source}"

    @property
    def no_gain(self) -> Needed:
        """The same, where fewer steps than dense training are noise and count as none."""
        if self.share is None or self.worst is None:
            return self
        return replace(self, share=max(0.0, self.share), worst=max(0.0, self.worst))


def _more(share: float | None) -> str:
    return "unknown" if share is None else "more than ten times as many" if share > 9 else f"{share:+.0%}"


@cache
def measured_steps() -> tuple[dict[str, Any], ...]:
    """Return what the recorded runs say of each method; the harness writes the file."""
    return tuple(read(data_dir() / "method_steps.json", loads)["methods"])


@cache
def scheme_laws() -> tuple[dict[str, Any], ...]:
    """Return what they say of schemes that are no single method: scheme, compressor, density and tasks."""
    return tuple(read(data_dir() / "method_steps.json", loads)["schemes"])


@cache
def batch_growth() -> dict[str, Any]:
    """Return the power of the batch by which extra steps of error feedback grow: exponent, low, high, batch, runs."""
    return dict(read(data_dir() / "method_steps.json", loads)["batch_growth"])


def steps_of_method(
    network: Network, collective: str, compressor: str, density: float, calls: str, train_steps: int = TRAIN_STEPS
) -> Needed:
    """Return what a method needs in a training of so many dense steps of `network`, by all records that hold.

    `calls`: whether "each" tensor has a compressor call of its own or calls are "joint", which matters to selections.
    """
    selects, ratio = keeps_fraction(compressor), network.compression(compressor, density, calls)
    tasks = [
        task
        for row in measured_steps()
        if row["collective"] == collective
        and (row["calls"] == calls or not selects)
        and alike(row["compressor"]) == alike(compressor)
        for task in row["tasks"].values()
    ]
    return steps_of_tasks(tasks, network, ratio, train_steps, compressor)


def steps_of_tasks(tasks: list[dict[str, Any]], network: Network, ratio: float, train_steps: int, what: str) -> Needed:
    """Return what the tasks that hold for a compression of `network` say; without any, what was never recorded.

    That is the median of what they needed, and the worst run of all; where a task missed the quality, so does this.
    """
    if not tasks:
        return Needed(None, f"{UNKNOWN}: no run is recorded of {what} sent like this")
    mine = [task for task in tasks if trains_alike(task, network)]
    if not mine:
        return Needed(None, f"{UNKNOWN}: no run of {what} is recorded of {network.text}")
    near = [task for task in mine if max(ratio / task["compression"], task["compression"] / ratio) <= ABOUT]
    if not near:
        recorded = ", ".join(f"{ratio:.3g}x" for ratio in sorted({task["compression"] for task in mine}))
        return Needed(
            None, f"{UNKNOWN}: {what} compresses this network {ratio:.3g}x, recorded of {network.text} at {recorded}"
        )
    alike_clipped = [task for task in near if network.clipped in (None, task["clipped"])] or near
    found = [needed(task, train_steps, network) for task in alike_clipped]
    worst = max(found, key=_worst)
    shares = [one.share for one in found if one.share is not None]
    if worst.share is None or len(found) == 1:
        return worst
    source = f"median of {len(found)} tasks, the worst of them {worst.source}"
    return replace(worst, share=median(shares), source=source, runs=sum(one.runs for one in found))


def clipping_matters(network: Network) -> bool:
    """Return whether nobody said that training clips, and of runs of such networks some did and some did not."""
    mine = [task for row in measured_steps() for task in row["tasks"].values() if trains_alike(task, network)]
    return network.clipped is None and len({task["clipped"] for task in mine}) > 1


def trains_alike(task: Mapping[str, Any], network: Network) -> bool:
    """Return whether a task is of the network's family, trained by its optimizer."""
    return (task["family"], task["optimizer"]) == (network.family, network.optimizer)


def needed(task: Mapping[str, Any], train_steps: int = TRAIN_STEPS, network: Network | None = None) -> Needed:
    """Return what one task of the file says of a training of so many dense steps of `network`; None: of its own.

    A delay over the steps, and a factor; a delay below none counts as none. With a larger batch than was recorded, what
    feeds errors back needs more; the worst run grows as the steepest recorded task, up to BEYOND the largest batch.
    """
    found = _of_its_batch(task, train_steps)
    if found.share is None or found.worst is None or not task["grows"] or network is None:
        return found
    batch = (network.ranks or task["ranks"]) * (network.batch or task["batch"] / task["ranks"])
    if batch <= task["batch"]:
        return found
    growth, more = batch_growth(), log(batch / task["batch"])
    times, most = (exp(more * growth[power]) for power in ("exponent", "high"))
    share, source = _scaled(found.share, times), f"{found.source}, {times:.2g}x the extra steps with {batch:,.0f}"
    far = batch / growth["batch"][1]
    if far > BEYOND and found.worst > 0:
        return replace(found, share=share, worst=None, source=f"{source}, {far:.2g}x the largest recorded batch")
    beyond = ", extrapolated" if far > 1 else ""
    return replace(
        found, share=share, worst=_scaled(found.worst, most), source=f"{source}, the worst {most:.2g}x{beyond}"
    )


def _scaled(share: float, times: float) -> float:
    return share * times if share > 0 else share


def _of_its_batch(task: Mapping[str, Any], train_steps: int) -> Needed:
    on = f"{in_words(task['family'], task['optimizer'], task['clipped'])} at {task['compression']:.3g}x"
    if task["unreached"] > MOST_UNREACHED:
        return Needed(
            None, f"worse: runs of {on} never reached {task['unreached']:.0%} of the quality of dense training"
        )
    runs = len(task["each"])
    where = f"{task['longest_steps']:,} dense steps of {batch_text(task['family'], task['batch'])}"
    worst = max(_at(delay_steps, factor, train_steps) for delay_steps, factor in task["each"])
    source = f"{runs} run{'s' * (runs != 1)} of {on} over {where}"
    return Needed(_at(task["delay_steps"], task["factor"], train_steps), source, worst, runs)


def alike(spec: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return a compressor without its rank: how far it compresses says more."""
    given = Spec.parse(spec, "compressor")
    return given.name, tuple(sorted((name, value) for name, value in given.options.items() if name != "rank"))


def _worst(known: Needed) -> float:
    return float("inf") if known.worst is None else known.worst


def _at(delay_steps: float, factor: float, train_steps: int) -> float:
    return max(delay_steps, 0.0) / train_steps + factor
