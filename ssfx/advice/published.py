"""What others published of the quality of a method at real size: strictly matched, never mixed with records of ssfx.

`data/published_quality.json` has every point with its address, place and grade: A is the paper itself, B the authors'
or a user's repository, C a note that quotes a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, log
from types import SimpleNamespace

from ssfx.compressors import build
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.spec import Spec, name_of
from ssfx.planning.plan import Plan
from ssfx.schemes.search.recorded_network import Network

RATIO, SIZE = 1.5, 4.0
"""By these factors a ratio and a number of parameters may differ and still be of this one."""
_BITS = {"fp16": "16 bits", "bf16": "16 bits", "fp8": "few bits", "qsgd": "few bits"}


Point = SimpleNamespace
"""One published end of a training beside its dense one, by the columns of the file, and the address of its source.

`kind` is a scheme or compressor of ssfx, both, or a word for what is neither. `every` and `replicas`: how often and by
how many weights are exchanged, of local updates alone. `worse_percent` below 0 is better than dense.
"""


def speaks(point: Point) -> bool:
    """Return whether an answer may quote it: paired, not second-hand, and a gap of loss with what it is in tokens."""
    in_tokens = point.task != "pretraining" or point.more_tokens_percent is not None
    return point.paired == "dense" and point.grade in "AB" and in_tokens


@dataclass(frozen=True)
class Asked:
    """What a published point has to be of; None: any. A line says which `feedback` its points had."""

    kinds: tuple[str, ...]
    optimizer: str
    family: str
    parameters: float
    sent: str = "gradient"
    ratio: float | None = None
    feedback: bool | None = None
    transform: str = ""
    replicas: int | None = None
    fine_tuning: bool = False


@cache
def points() -> tuple[Point, ...]:
    """Return every point of the file."""
    held = read(data_dir() / "published_quality.json", loads)
    rows = [Point(**dict(zip(held["columns"], values, strict=True))) for values in held["points"]]
    return tuple(Point(**vars(row), address=held["sources"][row.source]["address"]) for row in rows)


def matching(asked: Asked, among: Iterable[Point] | None = None) -> list[Point]:
    """Return the points that hold for what is asked: those of this size, or else of the nearest one."""
    found = [point for point in (points() if among is None else among) if speaks(point) and _holds(point, asked)]
    apart = [abs(log(point.parameters / asked.parameters)) for point in found]
    limit = max(log(SIZE), min(apart, default=0.0))
    return [point for point, far in zip(found, apart, strict=True) if far <= limit]


def _holds(point: Point, asked: Asked) -> bool:
    off = (
        inf
        if point.ratio is None
        else max(point.ratio / (asked.ratio or point.ratio), (asked.ratio or 0) / point.ratio)
    )
    return (
        point.kind in asked.kinds
        and asked.feedback in (None, point.feedback)
        and (asked.ratio is None or off <= RATIO)
        and (point.task == "fine-tuning") is asked.fine_tuning
        and optimizer_class(point.optimizer) == optimizer_class(asked.optimizer)
        and (point.sent, point.transform, point.family, point.replicas)
        == (asked.sent, asked.transform, asked.family, asked.replicas)
    )


def optimizer_class(name: str) -> str:
    """Return the class of an optimizer: sgd, adam, or its own name."""
    first = name.lower().replace(",", " ").partition(" ")[0]
    return {"adamw": "adam", "nesterov": "sgd"}.get(first, first)


def published_of(plan: Plan, network: Network, *, fine_tuning: bool = False) -> list[Point]:
    """Return the points that hold for the one method by which `plan` compresses; [] where it has several, or none."""
    sent = {
        (one.compressor, one.density, "each" if len(one.tensors) == 1 else "joint")
        for _, lane in plan.lanes()
        for one in lane.segments
        if one.compressor
    }
    if len({spec for spec, *_ in sent}) != 1 or not (family := family_word(network)):
        return []
    spec, density, calls = next(iter(sorted(sent)))
    name, built = name_of(str(spec)), build(str(spec))
    # What is selected in several tensors at once is another method than its compressor alone.
    own = plan.scheme.partition("_")[0] if plan.scheme.startswith("ssfusion") else plan.scheme
    return matching(
        Asked(
            (own, f"{own} {name}") + (() if built.sparse and own != "per_tensor" else (_BITS.get(name, name),)),
            network.optimizer,
            family,
            sum(one.numel for one in network.tensors),
            ratio=network.compression(str(spec), density, calls),
            feedback=None if name in _BITS else built.error_feedback,
            transform="hadamard" if Spec.parse(str(spec)).options.get("rotate") else "",
            fine_tuning=fine_tuning,
        )
    )


def local_updates(network: Network, replicas: int) -> list[Point]:
    """Return the points of DiLoCo, weights exchanged by so many replicas after many steps, on such a network."""
    size = sum(one.numel for one in network.tensors)
    return matching(
        Asked(("diloco",), network.optimizer, family_word(network), size, "pseudo-gradient", replicas=replicas)
    )


def family_word(network: Network) -> str:
    """Return the family as sources name it; "" for what has both an encoder and a decoder, or is of none."""
    if network.family != "transformer":
        return {"lstm": "recurrent", "conv": "conv"}.get(network.family, "")
    names = " ".join(one.name for one in network.tensors)
    return {(True, False): "encoder", (False, False): "decoder"}.get(("encoder" in names, "decoder" in names), "")


@dataclass(frozen=True)
class Quote:
    """What one source has: `gap` in short, `text` with what was trained, where it stands and what else to know."""

    gap: str
    data: str
    address: str
    far: str
    text: str

    def __str__(self) -> str:
        where = self.address.partition(" (")[0].partition(",")[0]
        return f"{self.gap} ({'; '.join(filter(None, (where, self.data, self.far)))})"


def quotes(found: Sequence[Point], parameters: float) -> list[Quote]:
    """Return one for each source, method, number of local steps, metric and data set, the best grade first."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in sorted(found, key=lambda one: one.grade):
        method = point.method.partition(",")[0]  # what follows is how many nodes, or the schedule
        key = (point.source, method, point.feedback, point.every, point.metric, point.data)
        groups.setdefault(key, []).append(point)
    return [_quote(group, parameters) for group in groups.values()]


def _quote(group: Sequence[Point], parameters: float) -> Quote:
    first, tokens = group[0], [one.more_tokens_percent for one in group if one.more_tokens_percent is not None]
    models = [one.model for one in sorted(group, key=lambda one: one.parameters)]
    trained = models[0] if models[0] == models[-1] else f"{models[0]} to {models[-1]}"
    if tokens:
        gap = f"{_span([one.worse_percent for one in group], '+.2f')} % loss, about {_span(tokens, '+.0f')} % tokens"
    else:
        percent = first.metric.endswith(", %")
        scale = 100 if max(one.dense for one in group) < 1 else 1  # accuracies that are fractions, in percent as others
        unit = " %" if percent or scale == 100 else ""
        ends, dense = ([scale * getattr(one, end) for one in group] for end in ("compressed", "dense"))
        gap = f"{first.metric.removesuffix(', %')} {_span(ends, '.4g')}{unit}, dense {_span(dense, '.4g')}{unit}"
    if first.every:
        gap = f"every {first.every} steps: {gap}"
    times = parameters / first.parameters
    apart = max(times, 1 / times)
    far = f"yours is {apart:.2g} times {'larger' if times > 1 else 'smaller'}" if apart > SIZE else ""
    facts = [
        f"{len(group)} points" if len(group) > 1 else "",
        f"{first.address}, {first.place}",
        far,
        *dict.fromkeys(one.note for one in group),
    ]
    method = first.method + ("" if first.feedback or first.every else ", no error feedback")
    text = f"{method}, {trained} on {first.data}, {first.optimizer}: {gap} ({'; '.join(filter(None, facts))})"
    return Quote(gap, first.data, first.address, far, text)


def listed() -> list[tuple[str, ...]]:
    """Return a line for every point: its name, its grade, and what it says."""
    return [(one.id, one.grade, quotes([one], one.parameters)[0].text) for one in points()]


def _span(values: Sequence[float], form: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"
