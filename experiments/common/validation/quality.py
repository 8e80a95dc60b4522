"""The law of extra steps, held against long runs that it has not seen: without one task, and without one ratio.

Blind to a task, it answers from the records of other networks of its family and optimizer. Blind to a ratio, it answers
from records of the same compressor at other ratios. Where the law has no answer, as where all of them are further than
a factor of two away, what the nearest record says is scored apart. Beside each score stands that of a law that asks of
every method as many steps as of dense training.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log
from typing import Any

from experiments.common.validation.groups import Group
from experiments.common.validation.scores import Pair, score
from ssfx.schemes.search.auto_steps import ABOUT, Needed, alike, measured_steps, needed, steps_of_tasks, trains_alike
from ssfx.schemes.search.recorded_network import Network
from ssfx.schemes.transport import keeps_fraction

NAME = "quality"
BY_TASK, BY_RATIO = "quality of another task", "quality at another ratio"
"""Names of the two groups."""
LITTLE = 0.05
"""More steps, as a share, up to which a method counts as one that costs little."""
Methods = tuple[dict[str, Any], ...]
Others = Callable[["Record", Methods], Iterator[dict[str, Any]]]
FITTED = "records of ssfx/data/method_steps.json but those that are scored"


@dataclass(frozen=True)
class Record:
    """What long runs of one method needed on one network; `task` is the file's."""

    method: dict[str, Any]
    model: str
    task: dict[str, Any]

    @property
    def horizon(self) -> int:
        """Steps of the dense runs."""
        return int(self.task["longest_steps"])

    @property
    def network(self) -> Network:
        """What was trained, which no table of tensors is asked about."""
        ranks, batch = self.task["ranks"], self.task["batch"]
        return Network(self.task["family"], self.task["optimizer"], (), ranks, batch // ranks)

    @property
    def actual(self) -> Needed:
        """What it needed."""
        return needed(self.task, self.horizon)

    def kin(self, other: dict[str, Any]) -> bool:
        """Return whether the law answers about this method from records of `other`."""
        mine = self.method
        one, two = mine["compressor"], other["compressor"]
        calls = mine["calls"] == other["calls"] or not keeps_fraction(one)
        return calls and mine["collective"] == other["collective"] and bool(alike(one) == alike(two))

    def pair(self, share: float, *, extrapolated: bool = False) -> Pair:
        """Return steps over those of dense training, predicted and actual."""
        panel, density = f"{self.model} ({self.task['family']}, {self.task['optimizer']})", self.method["density"]
        kept = "" if density is None else f" of {density:g}"
        label = f"{self.method['words']}{kept}, {self.task['compression']:.3g}x"
        assert self.actual.share is not None
        return Pair(panel, label, 1 + share, 1 + self.actual.share, extrapolated=extrapolated, whole_step=False)


def quality(methods: Methods | None = None) -> list[Group]:
    """Return the group of each way to be blind that leaves something to answer from; `methods`: those of the file."""
    every = measured_steps() if methods is None else methods
    return [
        *_group(BY_TASK, "without one network at a time", every, _other_tasks),
        *_group(BY_RATIO, "without one ratio at a time", every, _other_ratios),
    ]


def network_of(task: str) -> str:
    """Return the network of a task, whose name has optimizer and rate behind it."""
    return task.partition(",")[0]


def _other_tasks(one: Record, methods: Methods) -> Iterator[dict[str, Any]]:
    """Yield the tasks of the same method on other networks."""
    for method in filter(one.kin, methods):
        yield from (task for name, task in method["tasks"].items() if network_of(name) != network_of(one.model))


def _other_ratios(one: Record, methods: Methods) -> Iterator[dict[str, Any]]:
    """Yield the tasks of the same compressor with another rank or density."""
    own = one.method["compressor"], one.method["density"]
    for method in filter(one.kin, methods):
        if (method["compressor"], method["density"]) != own:
            yield from method["tasks"].values()


def _group(name: str, how: str, methods: Methods, others: Others) -> Iterator[Group]:
    pairs, unknown, missed, hoped, within = [], 0, 0, 0, 0
    tasks = [(method, model, task) for method in methods for model, task in method["tasks"].items()]
    every = [Record(*one) for one in tasks]
    for one in every:
        network, ratio = one.network, one.task["compression"]
        rest = list(others(one, methods))
        told = steps_of_tasks(rest, network, ratio, one.horizon, one.method["compressor"])
        share = told.share
        if one.actual.share is None:
            missed, hoped = missed + 1, hoped + (share is not None)
            continue
        unknown += share is None
        within += told.worst is not None and one.actual.share <= told.worst
        if share is not None:
            pairs.append(one.pair(share))
        elif (far := _nearest(rest, network, ratio, one.horizon)) is not None:
            pairs.append(one.pair(far, extrapolated=True))
    if not pairs:
        return
    there = len(every) - missed
    notes = (
        f"the law answers in {there - unknown} of {there} cases, of which {within} needed no more steps than the worst "
        f"run that it answered from; {missed} more never reached half of the levels of dense training, and it expected "
        f"{hoped} of these to",
    )
    inside, outside = f"answered, within {ABOUT:g}x", "not answered: nearest record"
    group = Group(
        f"{name}: steps over those of dense training, {how}",
        FITTED,
        f"{len(pairs)} of long runs",
        tuple(pairs),
        ((inside, lambda pair: not pair.extrapolated), (outside, lambda pair: pair.extrapolated)),
        notes,
        unit="x",
        over_dense=True,
    )
    yield replace(group, notes=(*notes, *_beaten(group, inside)))


def _beaten(group: Group, inside: str) -> tuple[str, ...]:
    """Return whether a law without any effect is nearer in the answered cases, and why; nothing where it is not."""
    answered = [pair for pair in group.pairs if not pair.extrapolated]
    without = group.no_effect(inside)
    if not answered or without is None or (own := score(answered)).mean < without:
        return ()
    cheap, more = sum(pair.actual <= 1 + LITTLE for pair in answered), "many" if own.bias > 0 else "few"
    return (
        f"where the law answers, it is {100 * own.mean:.1f} % off, and one that expects no effect of any method "
        f"{100 * without:.1f} %. Of these {len(answered)} cases {cheap} needed at most {100 * LITTLE:g} % more steps "
        f"than dense training, and the law asks for {100 * abs(own.bias):.1f} % too {more} on average (bias)",
    )


def _nearest(tasks: list[dict[str, Any]], network: Network, ratio: float, horizon: int) -> float | None:
    """Return the share of the task of the family and optimizer whose ratio is nearest, of those that have one."""
    mine = [task for task in tasks if trains_alike(task, network)]
    there = [task for task in mine if needed(task, horizon).share is not None]
    nearest = min(there, key=lambda task: abs(log(task["compression"] / ratio)), default=None)
    return None if nearest is None else needed(nearest, horizon, network).share
