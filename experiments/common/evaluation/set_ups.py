"""Set-ups of experiment=edition2026: a model on GPUs over a network, its best dense step, and what each method gains.

A gain is one of time to quality: a step times the steps that the method needs, over the best dense step that fits, in
16 bits too. It counts where the validated error of what sends alike on such a network leaves it (`ssfx.advice.trust`).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, exp, inf, log
from statistics import mean, median
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.validation.scores import by_way
from ssfx.advice.checked import network_of, where_checked
from ssfx.advice.map_2026 import FILE, gbps_per_device
from ssfx.advice.published import published_of
from ssfx.advice.ranked import surely_less
from ssfx.advice.sending import DENSE, LIMIT, steps_of, ways
from ssfx.advice.trust import trust_in_sending
from ssfx.core.case import Case
from ssfx.core.files import loads, write_json
from ssfx.core.paths import data_dir, results_dir
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric
from ssfx.lab.results.sent_methods import plan_of
from ssfx.lab.results.store import Store
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.extra_steps import TRAIN_STEPS, ExtraSteps
from ssfx.schemes.search.recorded_network import Network, family_of

HALF = "16-bit sums"
MAP_RANKS = 64
DENSE_SCHEMES = ("ddp", "ddp_fp16")
"""Of their rows, and of auto's with quality=dense, the best is what a method has to beat."""


FEWEST_RUNS = 2
"""Recorded runs without which no method is surely faster to quality: one may be luck."""


@dataclass(frozen=True)
class CheckedMethod:
    """A method in a set-up. more_steps: a share, None where its quality is unknown or worse than the limit.

    error: None where never scored. records: the runs that the quality rests on, in words, and how many they are.
    published: whether others published the quality of such a method on such a network.
    """

    scheme: str
    iteration_s: float
    sends: tuple[str, ...]
    more_steps: float | None
    error: float | None
    records: str = ""
    runs: int = 0
    published: bool = False

    @property
    def compresses(self) -> bool:
        """Whether it sends less than 16 bits of every element: a method may decide to stay dense."""
        return bool(set(self.sends) - {DENSE, HALF})

    @property
    def to_quality_s(self) -> float:
        """Seconds of a step, times the steps that are needed for one of dense training; inf where unknown."""
        return inf if self.more_steps is None else self.iteration_s * (1 + self.more_steps)


@dataclass(frozen=True)
class CheckedPlace:
    """A model on devices over a network. `methods` are those that fit; dense ones are `dense_s`."""

    model: str
    device: str
    precision: str
    cluster: str
    network: str
    gbps: float
    """Line rate of a node's cards, of one direction, for each of its devices; inside a node where there is only one."""
    ranks: int
    checked: bool
    alone_s: float
    dense_s: float
    methods: tuple[CheckedMethod, ...]

    @property
    def gain(self) -> float:
        """By how much the best method is faster to quality than dense, as a share; 0 where dense is best."""
        return max([0.0, *(self.dense_s / one.to_quality_s - 1 for one in self.methods if one.compresses)])

    @property
    def wins(self) -> tuple[CheckedMethod, ...]:
        """The methods that are surely faster to quality than dense."""
        return tuple(one for one in self.methods if self.surely(one))

    def surely(self, method: CheckedMethod) -> bool:
        """Return whether a method is faster to quality, by several runs, at any error of the times."""
        known = method.compresses and method.error is not None and method.runs >= FEWEST_RUNS
        return known and surely_less(method.to_quality_s, self.dense_s, method.error or 0.0)

    @property
    def affords(self) -> float:
        """How many times dense training's steps the shortest compressed step may need and still pay; at least 1."""
        return max([1.0, *(self.dense_s / one.iteration_s for one in self.methods if one.compresses)])

    @property
    def surely_shorter(self) -> bool:
        """Whether the step of some method that compresses is shorter than the dense one beyond the validated error."""
        return any(
            one.compresses and one.error is not None and surely_less(one.iteration_s, self.dense_s, one.error)
            for one in self.methods
        )

    @property
    def shortens(self) -> tuple[CheckedMethod, ...]:
        """The methods that compress and have a shorter step."""
        return tuple(one for one in self.methods if one.compresses and one.iteration_s < self.dense_s)

    def used(self, *, compressed: bool) -> float:
        """Return the share of a device's time that computes, dense or with the best method of known quality."""
        return self.alone_s / self.dense_s * (1 + self.gain if compressed else 1)


def places(rows: Sequence[Row]) -> tuple[list[CheckedPlace], int]:
    """Return the places where dense training fits, and how many there are where it does not; of whole models."""
    groups = alike([row for row in rows if row.case.sharding == "none"]).values()
    found = [place_of(group) for group in groups]
    return [one for one in found if one is not None], found.count(None)


def alike(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the latest rows of each model on devices over a network, by these."""
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in sorted(rows, key=lambda one: one.origin.date):
        case = row.case
        key = (case.model, str(case.cluster), case.precision, case.batch_size, case.world_size)
        shared = f"{case.sharding} {case.shards} {case.reduce_dtype} {case.reshard_after_forward}"
        label = f"{case.scheme} {sorted(case.scheme_options.items())} {case.compressor} {shared}"
        groups.setdefault(key, {})[label] = row
    return {key: list(group.values()) for key, group in groups.items()}


def fits(row: Row) -> bool:
    """Return whether the plan of a row fits in the memory of a device, with what compressors keep and its messages."""
    return bool(row.manifest["needed_bytes"] <= row.manifest["device_memory_bytes"])


def place_of(group: Sequence[Row]) -> CheckedPlace | None:
    """Return the place of rows that are alike but for their method; None where no dense training fits."""
    able = [row for row in group if fits(row)]
    dense = [metric(row, "iteration_s") for row in able if _is_dense(row.case)]
    if not dense:
        return None
    case = group[0].case
    cluster = cluster_on(case.cluster, case.world_size, case.device)
    network = network_of(cluster)
    methods = [_method(row, network) for row in able if not _is_dense(row.case)]
    return CheckedPlace(
        case.model,
        cluster.device,
        case.precision,
        str(case.cluster),
        network,
        gbps_per_device(cluster),
        case.world_size,
        "never" not in where_checked(cluster),
        group[0].manifest["alone_s"],
        min(dense),
        tuple(methods),
    )


def _is_dense(case: Case) -> bool:
    if case.sharding != "none":  # 16 bits are torch's own there, as reduce_dtype
        return case.scheme == "ddp"
    return case.scheme in DENSE_SCHEMES or case.scheme_options.get("quality") == "dense"


@cache
def _network(model: str, optimizer: str, batch: int) -> Network:
    work = model_work(model)
    return Network(family_of(work.tensors), optimizer, work.tensors, batch=batch * work.sample_tokens)


@cache
def _sending(
    methods: str, model: str, optimizer: str, batch: int, ranks: int
) -> tuple[tuple[str, ...], ExtraSteps, bool]:
    """Return how a row's methods send, the steps they need, and whether others published their quality.

    Many rows have the same ones.
    """
    plan, network = replace(plan_of(loads(methods)), world_size=ranks), _network(model, optimizer, batch)
    return ways(plan), steps_of(plan, network, TRAIN_STEPS), bool(published_of(plan, network))


def _method(row: Row, network: str) -> CheckedMethod:
    case = row.case
    methods, batch = json.dumps(row.manifest["methods"]), case.batch_size * case.accumulate
    sends, needed, published = _sending(methods, case.model, case.optimizer, batch, case.world_size)
    # No sharded step on GPUs was checked: errors of others say nothing of it.
    trust = trust_in_sending("nominal", sends, network) if case.sharding == "none" else None
    more_steps = needed.share if needed.within(LIMIT) else None
    return CheckedMethod(
        case.scheme,
        metric(row, "iteration_s"),
        sends,
        more_steps,
        trust.mean if trust else None,
        needed.source,
        needed.runs,
        published,
    )


# ---- what they come to ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """Set-ups, one for each place and method; `most_gbps` is the rate up to which wins lie.

    most_gbps: nine in ten wins; GPUs behind a slow bus win at any rate of the network.
    faster: those with a shorter step by their times. known: of them, those whose quality is known and whose time to it
    is shorter. sure: of them, those beyond the validated error; checked: of them, those on a network where steps were
    checked. records: the runs that the known ones rest on.
    """

    set_ups: int
    faster: int
    known: int
    sure: int
    checked: int
    most_gbps: float
    records: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What holds, in a few sentences."""
        where = f"; nine in ten of these have at most {self.most_gbps:.3g} Gbit/s per GPU" if self.sure else ""
        known = (
            f"In {self.known:,} of those the time to quality is shorter, by runs of {together(self.records)}. For the "
            f"other {self.faster - self.known:,}"
            if self.known
            else "For all of those"
        )
        return (
            f"In {self.sure:,} of {self.set_ups:,} simulated configurations that fit, compression surely shortens the "
            f"time to quality{where}. In {self.faster:,} it shortens the step by its times. {known} the quality is "
            "unknown, because no run is recorded of such a network or of such a batch, or worse"
        )


def together(records: Iterable[str]) -> str:
    """Return what records rest on: the classes of methods, each with its runs and networks; not 16 bits unrecorded."""
    classes = {record.partition(",")[0] for record in records if ":" in record}
    return " and ".join(f"{kind} ({runs})" for kind, _, runs in (one.partition(": ") for one in sorted(classes)))


def counted(found: Iterable[CheckedPlace]) -> Counted:
    """Return how many set-ups there are, and in how many a method wins."""
    every = list(found)
    pairs = [(place, one) for place in every for one in place.methods]
    faster = [(place, one) for place, one in pairs if one.compresses and one.iteration_s < place.dense_s]
    known = [(place, one) for place, one in faster if one.to_quality_s < place.dense_s]
    sure = [place for place, one in known if place.surely(one)]
    surely = sorted(place.gbps for place in sure)
    return Counted(
        len(pairs),
        len(faster),
        len(known),
        len(sure),
        sum(place.checked for place in sure),
        surely[ceil(0.9 * len(surely)) - 1] if surely else 0.0,
        tuple(sorted({one.records for _, one in known})),
    )


def needed_gbps(found: Iterable[CheckedPlace], share: float, *, compressed: bool) -> float:
    """Return the least Gbit/s per device from which on devices compute for `share` of the time.

    Between simulated rates it follows a straight line over their logarithm; inf where no simulated rate suffices. The
    places are those of one model on one device.
    """
    best: dict[float, float] = {}
    for place in found:  # several networks of a rate: the better
        best[place.gbps] = max(best.get(place.gbps, 0.0), place.used(compressed=compressed))
    points = sorted(best.items())
    above = inf
    for (low, low_used), (high, high_used) in reversed(list(zip([(0.0, 0.0), *points], points, strict=False))):
        if high_used < share:
            return above
        above = high
        if low_used < share and low:
            way = (share - low_used) / (high_used - low_used)
            return exp(log(low) + way * (log(high) - log(low)))
    return above


def on_the_map(found: Iterable[CheckedPlace]) -> list[CheckedPlace]:
    """Return the places on eight nodes of eight GPUs: the others are measured clusters and two far sites."""
    return [one for one in found if one.cluster.startswith("box") and one.ranks == MAP_RANKS]


def map_lines(found: Iterable[CheckedPlace]) -> list[dict[str, Any]]:
    """Return a line for each device, precision, network and rate of the map, over its models.

    affords: the median of what compressed training may take, as a multiple of dense steps, and still pay. shorter: how
    many models have a compressed step that is surely shorter; recorded, published: how many one that is shorter and
    whose quality runs here, or others, have; wins: how many a surely shorter time to quality.
    """
    groups = grouped(on_the_map(found), lambda one: (one.device, one.precision, one.network, one.gbps))
    return [
        {
            "device": device,
            "precision": precision,
            "network": network,
            "gbps": gbps,
            "affords": round(median(one.affords for one in here), 3),
            "shorter": sum(one.surely_shorter for one in here),
            "recorded": sum(any(method.runs for method in one.shortens) for one in here),
            "published": sum(any(method.published for method in one.shortens) for one in here),
            "wins": sum(bool(one.wins) for one in here),
            "models": len(here),
        }
        for (device, precision, network, gbps), here in sorted(groups.items())
    ]


# ---- and if the simulator errs as it is known to --------------------------------------------------------------------


@cache
def _biases() -> Mapping[tuple[str, str], list[float]]:
    from experiments.common.validation.ground_truth import load  # late: it simulates all steps that papers print

    found = by_way(pair for group in load("published") for pair in group.pairs if pair.whole_step)
    return {key: [pair.error for pair in own] for key, own in found.items()}


def bias_of(sends: Iterable[str], network: str) -> float:
    """Return the mean signed error of steps that send like this on such a network, or on any; 0 where none is known."""
    worst = 0.0
    for way in sends:
        of_way = {where: errors for (name, where), errors in _biases().items() if name == way}
        errors = of_way.get(network) or [one for errors in of_way.values() for one in errors]
        worst = max(worst, mean(errors) if errors else 0.0, key=abs)
    return worst


def corrected(
    found: Iterable[CheckedPlace], bias: Callable[[Iterable[str], str], float] = bias_of
) -> list[CheckedPlace]:
    """Return the places with all times as they would be if the simulator erred by its known bias, and by no more."""
    return [
        replace(
            place,
            dense_s=place.dense_s / (1 + bias([DENSE], place.network)),
            methods=tuple(
                replace(one, iteration_s=one.iteration_s / (1 + bias(one.sends, place.network)), error=0.0)
                for one in place.methods
            ),
        )
        for place in found
    ]


def map_text(rows: Sequence[Row]) -> str:
    """Return the text of the file that `ssfx advise` reads."""
    note = "rows of experiment=edition2026 in results/reference; eight nodes of eight GPUs, over all models that fit"
    return json.dumps({"origin": {"kind": "simulated", "note": note}, "places": map_lines(places(rows)[0])}, indent=1)


def sharded_places(rows: Sequence[Row]) -> list[CheckedPlace]:
    """Return the places where no whole model fits and sharded dense training does; the best of that is `dense_s`."""
    whole = {
        key for key, group in alike([row for row in rows if row.case.sharding == "none"]).items() if place_of(group)
    }
    sharded = alike([row for row in rows if row.case.sharding != "none"])
    found = [place_of(group) for key, group in sharded.items() if key not in whole]
    return [one for one in found if one is not None]


def sharded_sentence(rows: Sequence[Row]) -> str:
    """Return what holds where models fit in shards only, in a sentence; "" without such rows."""
    found = sharded_places(rows)
    if not found:
        return ""
    whole = counted(found)
    return (
        f"Where a model fits in shards only ({len(found)} places), {whole.faster:,} of {whole.set_ups:,} "
        f"configurations have a shorter step than the best of FSDP2 and HSDP by their times, and {whole.known:,} "
        "of those a quality that is not unknown; no sharded step was ever checked on GPUs, so that none surely pays"
    )


if __name__ == "__main__":
    committed = Store(results_dir()).reference_rows("edition2026")
    write_json(data_dir() / FILE, map_text(committed))
