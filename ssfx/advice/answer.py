"""The Answer: eight facts of a ranking, as numbers. What is printed of it stands in `screen`; JSON is its fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from math import ceil, inf
from typing import Any, Literal

from ssfx.advice.break_even import BreakEvens
from ssfx.advice.map_2026 import gbps_per_device
from ssfx.advice.published import Quote, local_updates, published_of, quotes
from ssfx.advice.ranked import Entry, Ranking
from ssfx.advice.rounds import RoundsRecord, holding
from ssfx.advice.setting import TASKS, Setting
from ssfx.advice.trust import Trust
from ssfx.perf_model.cautions import cautions

WORTH = 0.01
"""A gain below this share of the step is none."""
HALF = 0.5
"""Share of the devices' work that accumulation is to give."""
MOST_PASSES = 4096
SLOW_GBPS = 25.0
"""Line rate for each device at or below which local updates are named: above it exchanges of every step are as fast."""

ROUNDS = "diloco"
"""The scheme of local updates that stands for all: the one of most published quality."""

Word = Literal["yes", "no", "close", "unknown"]


@dataclass(frozen=True)
class Accumulated:
    """`passes` of forward and backward before one exchange, the work that is, and the batch over that of now."""

    passes: int
    work: float
    batch_times: float


@dataclass(frozen=True)
class Answer:
    """`answer` is yes where a method of recorded quality and scored times is surely faster than tuned dense.

    It is no, too, where one device alone is faster than all with the best known way, `known`.
    """

    model: str
    cluster: str
    device: str
    devices: int
    nodes: int
    network: str
    batch_size: int
    accumulate: int
    precision: str
    density: float
    """Of every scheme that selects."""
    sharding: str
    answer: Word
    alone_is_faster: bool
    """Whether one device alone does more work than all, and has memory for the whole model."""
    alone_samples_per_s: float
    now: Entry
    """torch's DDP as it comes, or its own sharding."""
    measured: str
    """What a measured step says of the network, which all times here have then; "" where none was given."""
    dense: Entry
    """Tuned dense: the fastest that changes no method."""
    best: Entry | None
    """The fastest of recorded quality and scored times that compresses."""
    most: float
    """The share of tuned dense's step that a free network would save."""
    fewer: Accumulated | None
    """With tuned dense, for HALF of the devices' work; with the best known way for more than one device's."""
    pays_from_gbps: float | None
    """The rate of a link from which on several devices are faster than one; None where they are, or it has no rate."""
    faster: tuple[Entry, ...]
    """Methods faster than tuned dense by the clock, of unknown quality, or worse; those of unsure times last."""
    unchecked: tuple[Entry, ...]
    """Those of recorded quality, of whose way of sending no time was ever scored."""
    rounds: Entry | None
    """ROUNDS on a slow network, if a step of them is shorter on average than that of the best known way, and fits."""
    rounds_recorded: tuple[RoundsRecord, ...]
    """Recorded quality of such rounds that holds here."""
    more_steps: float | None
    """What the best needs more than dense training, as a share; `steps_between` which, by so many recorded `runs`."""
    steps_between: tuple[float | None, float | None]
    runs: int
    quality: str
    published: tuple[tuple[str, Quote], ...]
    """What others published of the faster methods, and of local updates where the network is slow."""
    other_task: str
    """The task of TASKS for which alone something of the faster methods is published, if another was asked; else ""."""
    memory: str
    error: Trust | None
    cautions: tuple[str, ...]
    schemes: tuple[Entry, ...]
    """All that were compared, the fastest first."""

    @cached_property
    def known(self) -> Entry:
        """The best known way: dense, or the best method of recorded quality."""
        return min([self.dense, *([self.best] if self.best else [])], key=lambda one: one.iteration_s)

    @property
    def rounds_may_need(self) -> float | None:
        """How many times the steps of the best known way rounds may need and still end sooner."""
        return None if self.rounds is None else self.known.iteration_s / self.rounds.iteration_s

    @property
    def rounds_are_sooner(self) -> bool:
        """Whether all recorded runs that hold here needed fewer steps than rounds may need."""
        may, known = self.rounds_may_need or 0.0, self.rounds_recorded
        return bool(known) and all(not one.at_least and max(one.times) < may for one in known)

    def plain(self) -> dict[str, Any]:
        """Return its fields as what JSON can hold; of rounds how many times the steps they may need."""
        found = {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.name != "rounds"}
        return {**found, "rounds_may_need": self.rounds_may_need, "rounds_are_sooner": self.rounds_are_sooner}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Entry):
        return value.plain()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def answer_of(advice: Ranking) -> Answer:
    """Return what the ranking comes to."""
    setting, dense, best = advice.setting, advice.dense, next(iter(advice.recommendable), None)
    profile, cluster, devices = setting.profile, setting.cluster, setting.cluster.world_size
    ahead = [
        one
        for one in advice.compressing
        if one not in advice.recommendable and one.iteration_s < dense.iteration_s * (1 - WORTH / 2)
    ]
    known = best if best and best.iteration_s < dense.iteration_s else dense
    alone_is_faster = known.work < 1 and _fits_whole(setting)
    word: Word = "unknown" if best is None and ahead else "no"
    if best is not None and 1 - 1 / best.vs_dense >= WORTH:
        word = "close" if advice.unclear(best) else "yes"
    takes = {one.name: setting.memory(one.trial) for one in (dense, best) if one is not None}
    methods = [*filter(None, [best]), *ahead]
    published = tuple(_published(advice, methods))
    fits = [f"{'' if name == dense.name else f'with {name} '}{one.said}" for name, one in takes.items() if one]
    return Answer(
        model=profile.model,
        cluster=cluster.name,
        device=cluster.device,
        devices=devices,
        nodes=cluster.nodes,
        network=cluster.network_text,
        batch_size=profile.batch_size,
        accumulate=setting.accumulate,
        precision=setting.precision,
        density=setting.density,
        sharding=setting.sharding.text if setting.sharding else "",
        answer="no" if alone_is_faster else word,
        alone_is_faster=alone_is_faster,
        alone_samples_per_s=setting.samples / setting.alone_s,
        now=Entry(setting.as_it_comes(), setting, dense.iteration_s),
        measured=setting.measured,
        dense=dense,
        best=best,
        most=max(0.0, 1 - setting.alone_s / dense.iteration_s),
        fewer=_accumulated(advice, known, 1.0) if alone_is_faster else _accumulated(advice, dense),
        pays_from_gbps=_pays_from_gbps(advice, known) if alone_is_faster else None,
        faster=tuple(sorted((one for one in ahead if one.more_steps is None), key=lambda one: one.unsure)),
        unchecked=tuple(one for one in ahead if one.more_steps is not None),
        rounds=(rounds := _rounds(advice, known, dense.iteration_s)),
        rounds_recorded=tuple(_recorded(setting, rounds)),
        more_steps=best.more_steps if best else None,
        steps_between=(best.needed.low, best.needed.high) if best else (None, None),
        runs=best.needed.runs if best else 0,
        quality=best.needed.source if best else "",
        published=published,
        other_task="" if published else _other_task(setting, methods),
        memory=", ".join(fits)
        + (", activations unknown" if any(one and one.sample is None for one in takes.values()) else ""),
        error=(best or dense).trust,
        cautions=tuple(cautions(profile, cluster)),
        schemes=advice.entries,
    )


def _fits_whole(setting: Setting) -> bool:
    """Return whether a device can train the whole model alone; where ranks do not share it each of them does."""
    if setting.sharding is None:
        return True
    whole = replace(setting, sharding=None)
    needed = whole.memory(whole.as_it_comes())
    return needed is not None and needed.fits


def _accumulated(advice: Ranking, entry: Entry, work: float | None = None) -> Accumulated | None:
    """Return the fewest passes before an exchange with which all devices do so much work; None where one does.

    `work` None: HALF of what they do with ever more passes, which sharded models exchange in, too.

    Seconds of a step are linear in the passes: all but the last compute alone.
    """
    setting, devices = advice.setting, advice.setting.cluster.world_size
    passes, first_s, alone_s = setting.accumulate, entry.iteration_s, setting.alone_s
    more_s = setting.accumulated(entry.trial, passes + 1).iteration_s - first_s
    alone_more_s = setting.profile.alone_s(passes + 1) - alone_s
    if work is None:
        work = HALF * min(devices, devices * alone_more_s / more_s)
    # devices (alone_s + n alone_more_s) = work (first_s + n more_s), of n further passes
    slope = devices * alone_more_s - work * more_s
    further = (work * first_s - devices * alone_s) / slope if slope > 0 else inf
    if further <= 0 or further >= MOST_PASSES:
        return None
    n = ceil(further)
    return Accumulated(n + passes, devices * (alone_s + n * alone_more_s) / (first_s + n * more_s), n / passes + 1)


def _pays_from_gbps(advice: Ranking, known: Entry) -> float | None:
    """Return the rate of a link below which one device alone is faster than all; None for one that is no rate."""
    evens = BreakEvens(advice.setting)
    names = {one.scheme for one in advice.entries if one.trial.tuned} | {known.name}
    gbps = evens.alone(names).gbps if evens.possible else inf
    return gbps if gbps < inf else None


def _is_slow(advice: Ranking) -> bool:
    """Return whether local updates are worth a word."""
    setting = advice.setting
    slow = setting.cluster.nodes > 1 and gbps_per_device(setting.cluster) <= SLOW_GBPS
    return slow and not setting.fine_tuning and setting.sharding is None


def _rounds(advice: Ranking, known: Entry, dense_s: float) -> Entry | None:
    """Return ROUNDS between nodes, where they are worth a word."""
    if not _is_slow(advice):
        return None
    trial = advice.setting.best(ROUNDS)
    if (memory := advice.setting.memory(trial)) and not memory.fits:
        return None
    shorter = known.iteration_s > (1 + WORTH) * trial.iteration_s
    return Entry(trial, advice.setting, dense_s) if shorter else None


def _recorded(setting: Setting, entry: Entry | None) -> list[RoundsRecord]:
    rounds = entry.trial.plan.rounds if entry is not None else None
    return holding(ROUNDS, rounds, setting.network, setting.cluster.world_size) if rounds is not None else []


def _other_task(setting: Setting, entries: Sequence[Entry]) -> str:
    """Return the task that was not asked about, where something of `entries` is published of it; else ""."""
    other = not setting.fine_tuning
    found = any(published_of(one.trial.plan, setting.network, fine_tuning=other) for one in entries)
    return TASKS[other] if found else ""


def _published(advice: Ranking, entries: Sequence[Entry]) -> Iterator[tuple[str, Quote]]:
    """Yield what was published of the method of `entries` that has most, and of local updates on a slow network."""
    setting, network = advice.setting, advice.setting.network
    size = sum(one.numel for one in network.tensors)
    each = {one.name: published_of(one.trial.plan, network, fine_tuning=setting.fine_tuning) for one in entries}
    # That of most sources; of equal ones the fastest.
    name = max(each, key=lambda name: len({point.source for point in each[name]}), default="")
    yield from ((name, one) for one in quotes(each.get(name, []), size))
    if _is_slow(advice):
        yield from (
            (f"DiLoCo, {setting.cluster.nodes} replicas", one)
            for one in quotes(local_updates(network, setting.cluster.nodes), size)
        )
