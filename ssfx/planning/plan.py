"""The Plan: which gradients are compressed together, where and how hard, and which collective carries them, and when.

Every scheme produces one, both executors walk it. It is plain immutable data: printable, serialisable, with a digest
that all ranks compare. Sizes are elements unless the name says bytes. Source: D-41.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeVar

from ssfx.core.files import loads
from ssfx.core.typed import typed
from ssfx.planning.rounds import Rounds

FORMAT_VERSION = 1
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}

Made = TypeVar("Made")
Placement = Literal["device", "host"]
Decode = Literal["end", "comm_stream"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One trainable tensor: its parameter name, shape and dtype (a key of ITEM_BYTES)."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self) -> int:
        """Number of elements; a scalar has one."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense gradient."""
        return self.numel * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Segment:
    """The tensors handed to one compressor call, or sent dense when `compressor` is None.

    `compressor` is a spec such as "dgc" or "topk(value_dtype=float16)"; `density` in (0, 1] is the kept fraction.
    """

    tensors: tuple[str, ...]
    compressor: str | None = None
    density: float = 1.0
    placement: Placement = "device"

    @property
    def dense(self) -> bool:
        """True when the values travel as they are."""
        return self.compressor is None


@dataclass(frozen=True, slots=True)
class Lane:
    """One message of one collective."""

    collective: str
    segments: tuple[Segment, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors in the lane, in segment order."""
        return tuple(name for segment in self.segments for name in segment.tensors)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Lanes that were planned together; each starts when its own last gradient is ready."""

    lanes: tuple[Lane, ...]


class PlanError(ValueError):
    """A plan that breaks an invariant: a bug in the scheme that made it."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """What is looked up by the name of a tensor, of all plans of one model."""

    tensors: tuple[TensorSpec, ...]
    by_name: dict[str, TensorSpec]
    order: dict[str, int]
    numel: dict[str, int]
    mixed: bool
    of_segments: dict[Segment, Any] = field(default_factory=dict)


_made: dict[int, _Tables] = {}
_MOST_TABLES, _MOST_SEGMENTS = 8, 1 << 16


def _tables_of(tensors: tuple[TensorSpec, ...]) -> _Tables:
    """Return the tables of `tensors`: searches make many plans of the very same ones."""
    found = _made.get(id(tensors))
    if found is None or found.tensors is not tensors:
        names = [spec.name for spec in tensors]
        found = _Tables(
            tensors,
            dict(zip(names, tensors, strict=True)),
            {name: i for i, name in enumerate(names)},
            {spec.name: spec.numel for spec in tensors},
            len({spec.dtype for spec in tensors}) > 1,
        )
        if len(_made) >= _MOST_TABLES:
            _made.clear()
        _made[id(tensors)] = found
    return found


@dataclass(frozen=True)
class Plan:
    """Buckets in backward order and the order in which their lanes are launched, identical on every rank.

    `tensors` lists every trainable tensor in backward order (0 = first gradient to become ready). `launch_order` holds
    (bucket, lane) positions. `overlap` False means no lane starts before backward has ended. `rounds`: weights are
    exchanged so, not the gradients of every step. Raises PlanError when an invariant does not hold (D-41).
    """

    scheme: str
    world_size: int
    tensors: tuple[TensorSpec, ...]
    buckets: tuple[Bucket, ...]
    launch_order: tuple[tuple[int, int], ...]
    overlap: bool = True
    decode: Decode = "end"
    notes: tuple[tuple[str, str], ...] = field(default=())
    rounds: Rounds | None = None

    def __post_init__(self) -> None:
        parts = (self.tensors, self.buckets, self.launch_order)
        if not any(all(a is b for a, b in zip(parts, seen, strict=True)) for seen in _checked):
            _check(self)
            _checked.append(parts)
        if self.world_size < 1:
            raise PlanError(f"plan of scheme {self.scheme!r}: world size {self.world_size} is not positive")
        if self.decode not in ("end", "comm_stream"):
            raise PlanError(f"plan of scheme {self.scheme!r}: decode {self.decode!r} is neither end nor comm_stream")

    @cached_property
    def _tables(self) -> _Tables:
        return _tables_of(self.tensors)

    @property
    def by_name(self) -> dict[str, TensorSpec]:
        """Tensor specs by parameter name."""
        return self._tables.by_name

    @property
    def order(self) -> dict[str, int]:
        """Position of every tensor in backward order."""
        return self._tables.order

    def once(self, segment: Segment, make: Callable[[Segment], Made]) -> Made:
        """Return what `make` makes of a segment, for all plans of these tensors; there is one such function."""
        known = self._tables.of_segments
        if segment not in known:
            if len(known) >= _MOST_SEGMENTS:
                known.clear()
            known[segment] = make(segment)
        made: Made = known[segment]
        return made

    def numel(self, part: Segment | Lane) -> int:
        """Number of elements of a segment or lane."""
        sizes = self._tables.numel
        return sum([sizes[name] for name in part.tensors])

    def lane(self, position: tuple[int, int]) -> Lane:
        """The lane at a (bucket, lane) position."""
        return self.buckets[position[0]].lanes[position[1]]

    def lanes(self) -> Iterator[tuple[tuple[int, int], Lane]]:
        """Yield ((bucket, lane), Lane) in launch order."""
        for position in self.launch_order:
            yield position, self.lane(position)

    def to_json(self) -> str:
        """Return the canonical JSON text; equal plans give equal bytes."""
        raw = {"format": FORMAT_VERSION, **{one.name: getattr(self, one.name) for one in fields(self)}}
        if (rounds := raw.pop("rounds")) is not None:  # plans without rounds, or without groups, keep their digests
            raw["rounds"] = {key: one for key, one in asdict(rounds).items() if (key, one) != ("ranks_per_group", 1)}
        raw["tensors"] = [_raw(spec) for spec in self.tensors]
        # `rank` is part of format 1, and so of every digest; it never meant anything.
        raw["buckets"] = [
            {
                "lanes": [
                    {**_raw(lane), "segments": [{**_raw(segment), "rank": 0} for segment in lane.segments]}
                    for lane in bucket.lanes
                ]
            }
            for bucket in self.buckets
        ]
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote; raises PlanError for another format version."""
        raw: dict[str, Any] = loads(text)
        if raw.pop("format", None) != FORMAT_VERSION:
            raise PlanError(f"this plan was written in another format; expected version {FORMAT_VERSION}")
        for bucket in raw["buckets"]:
            for lane in bucket["lanes"]:
                for segment in lane["segments"]:
                    segment.pop("rank", None)  # which `to_json` writes
        return typed(cls, raw)

    @cached_property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON; ranks compare it before they use a plan."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def _raw(one: TensorSpec | Lane | Segment) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def launch_in_order(plan_buckets: tuple[Bucket, ...], tensors: tuple[TensorSpec, ...]) -> tuple[tuple[int, int], ...]:
    """Return the launch order bucket by bucket, lane by lane, leaving out lanes without elements."""
    numel = _tables_of(tensors).numel
    return tuple(
        (b, k)
        for b, bucket in enumerate(plan_buckets)
        for k, lane in enumerate(bucket.lanes)
        if any(numel[name] for name in lane.tensors)
    )


_checked: deque[tuple[object, object, object]] = deque(maxlen=16)
"""Tensors, buckets and launch orders that were found right: a plan with other notes has the very same ones."""


def _check(plan: Plan) -> None:
    def fail(text: str) -> None:
        raise PlanError(f"plan of scheme {plan.scheme!r}: {text}")

    if len(plan.by_name) != len(plan.tensors):
        fail("two tensors share a name")
    for spec in plan.tensors:
        if spec.dtype not in ITEM_BYTES:
            fail(f"tensor {spec.name!r} has unsupported dtype {spec.dtype!r}")

    seen: list[int] = []
    non_empty = set()
    order, mixed = plan.order, plan._tables.mixed
    sizes = list(plan._tables.numel.values())
    for b, bucket in enumerate(plan.buckets):
        if not bucket.lanes:
            fail(f"bucket {b} has no lanes")
        for k, lane in enumerate(bucket.lanes):
            where = f"bucket {b} lane {k}"
            if not lane.segments:
                fail(f"{where} has no segments")
            firsts: list[int] = []
            positions: list[int] = []
            for segment in lane.segments:
                _check_segment(segment, where, fail)
                try:
                    here = [order[name] for name in segment.tensors]
                except KeyError as error:
                    fail(f"{where} names unknown tensor {error.args[0]!r}")
                if len(here) > 1 and here != sorted(here):
                    fail(f"{where}: tensors of a segment are not in backward order")
                firsts.append(here[0])
                positions += here
            if len(firsts) > 1 and firsts != sorted(firsts):
                fail(f"{where}: segments are not in backward order")
            if mixed and len({plan.tensors[at].dtype for at in positions}) > 1:
                fail(f"{where} mixes dtypes")
            if any(sizes[at] for at in positions):
                non_empty.add((b, k))
            seen += positions
    times = Counter(seen)
    if len(times) != len(seen):
        fail(f"tensor {plan.tensors[times.most_common(1)[0][0]].name!r} is in two segments")
    if missing := set(range(len(plan.tensors))) - times.keys():
        fail(f"tensor {min(plan.tensors[at].name for at in missing)!r} is in no segment")
    if len(plan.launch_order) != len(set(plan.launch_order)) or set(plan.launch_order) != non_empty:
        fail("launch_order must list every non-empty lane exactly once")


def _check_segment(segment: Segment, where: str, fail: Any) -> None:
    if not segment.tensors:
        fail(f"{where} has a segment without tensors")
    if not 0 < segment.density <= 1:
        fail(f"{where}: density {segment.density} is not in (0, 1]")
    if segment.dense and (segment.density != 1 or segment.placement == "host"):
        fail(f"{where}: a dense segment has density 1 and stays on the device")
    if segment.placement not in ("device", "host"):
        fail(f"{where}: placement {segment.placement!r} is neither device nor host")
