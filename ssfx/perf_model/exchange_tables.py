"""Tables of measured exchanges: seconds by collective, ranks, ranks of a node and bytes, and the curves they give."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from typing import Any

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import numeric, whole
from ssfx.core.plausible import plausible
from ssfx.planning.costs import Curve, measured

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
"""Collectives that tables are of, as nccl-tests calls its programs."""
FEWEST = 2
"""Sizes that a table has at least."""
DIP = 0.99
"""A larger message that takes less than this share of the time of a smaller one makes a table not monotone."""
_IN_A_ROW = 12
_KEYS = ("collective", "ranks", "ranks_per_node", "library", "source", "bytes", "us")


@dataclass(frozen=True)
class ExchangeTable:
    """Microseconds of one collective on `ranks` devices, `ranks_per_node` of them in each machine.

    `nbytes` are sizes as nccl-tests prints them: what a rank contributes to all_reduce, alltoall, reduce_scatter and
    sendrecv, what a rank receives in all_gather. ConfigError for what cannot be a table.
    """

    collective: str
    ranks: int
    ranks_per_node: int
    nbytes: tuple[int, ...]
    us: tuple[float, ...]
    library: str = ""
    """Which library was measured, "NCCL 2.21.5"; "" where it is not known."""
    source: str = ""
    """The file, with the start of its SHA-256, or the address."""

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise unknown("collective in exchanges", self.collective, COLLECTIVES)
        if self.ranks < 2 or not 1 <= self.ranks_per_node <= self.ranks or self.ranks % self.ranks_per_node:
            raise ConfigError(f"exchanges: {self.ranks} ranks, {self.ranks_per_node} in a node, are no cluster")
        if len(self.nbytes) != len(self.us) or len(self.nbytes) < FEWEST:
            counts = f"{len(self.nbytes)} and {len(self.us)}"
            raise ConfigError(
                f"exchanges: {self.collective} has {counts} bytes and us; give as many of both, at least 2"
            )
        if any(b <= a for a, b in pairwise((0, *self.nbytes))):
            raise ConfigError(f"exchanges: bytes of {self.collective} must be positive and increase")
        if not all(value > 0 and isfinite(value) for value in self.us):
            raise ConfigError(f"exchanges: us of {self.collective} must be positive numbers")
        plausible(
            "table_gbps", self.busbw_gbps, f"exchanges: the bus bandwidth that bytes and us of {self.collective} are"
        )

    @property
    def contributed(self) -> tuple[float, ...]:
        """Bytes that one rank contributes, the sizes of curves."""
        parts = self.ranks if self.collective == "all_gather" else 1
        return tuple(size / parts for size in self.nbytes)

    @property
    def curve(self) -> Curve:
        """Seconds over the bytes that one rank contributes."""
        return measured(self.contributed, [1e-6 * value for value in self.us])

    @property
    def dips(self) -> tuple[int, ...]:
        """Sizes that take less time than a smaller size does."""
        return tuple(
            size
            for (_, before), (size, after) in pairwise(zip(self.nbytes, self.us, strict=True))
            if after < DIP * before
        )

    @property
    def busbw_gbps(self) -> float:
        """The largest bus bandwidth in Gbit/s, as nccl-tests defines it."""
        factor = {"all_reduce": 2 * (self.ranks - 1) / self.ranks, "sendrecv": 1.0}
        share = factor.get(self.collective, (self.ranks - 1) / self.ranks)
        return max(8e-3 * share * size / us for size, us in zip(self.nbytes, self.us, strict=True))

    def at_rate(self, factor: float) -> ExchangeTable:
        """Return the table of a network with `factor` times the bandwidth and the same least time."""
        least = min(self.us)
        return replace(self, us=tuple(least + (value - least) / factor for value in self.us))

    @property
    def text(self) -> str:
        """The table in words."""
        kind = f", {self.library}" if self.library else ""
        nodes = self.ranks // self.ranks_per_node
        return f"{self.ranks} ranks on {nodes} node{'s' * (nodes > 1)}, {self.sizes_text}{kind}"

    @property
    def sizes_text(self) -> str:
        """The smallest and the largest size in words."""
        return f"{sized(self.nbytes[0])} to {sized(self.nbytes[-1])}"


def sized(nbytes: float) -> str:
    """Return a number of bytes for people, in powers of 1024."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return f"{nbytes / size:.4g} {unit}"
    return f"{nbytes:.4g} B"


def tables_of(said: Any) -> tuple[ExchangeTable, ...]:
    """Return the tables of the `exchanges` of a cluster's file; ConfigError for what is none."""
    if said is None:
        return ()
    if not isinstance(said, Sequence) or isinstance(said, str):
        raise ConfigError(f"cluster.exchanges must be a list of tables, got {said!r}")
    found: dict[tuple[str, int, int], ExchangeTable] = {}
    for one in said:
        if not isinstance(one, Mapping):
            raise ConfigError(f"cluster.exchanges must hold tables with {', '.join(_KEYS)}, got {one!r}")
        if wrong := next((key for key in one if key not in _KEYS), None):
            raise unknown("key in exchanges", str(wrong), _KEYS)
        table = ExchangeTable(
            str(one.get("collective")),
            _whole(one, "ranks"),
            _whole(one, "ranks_per_node"),
            tuple(_whole({"bytes": value}, "bytes") for value in _list(one, "bytes")),
            tuple(_positive(value) for value in _list(one, "us")),
            str(one.get("library") or ""),
            str(one.get("source") or ""),
        )
        key = (table.collective, table.ranks, table.ranks_per_node)
        if key in found:
            raise ConfigError(f"cluster.exchanges has two tables of {table.collective} on {table.ranks} ranks")
        found[key] = table
    return tuple(found.values())


def _list(one: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = one.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigError(f"cluster.exchanges: {key} must be a list of numbers, got {value!r}")
    return value


def _whole(one: Mapping[str, Any], key: str) -> int:
    value = whole(one.get(key))
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"cluster.exchanges: {key} must be a whole number, got {value!r}")
    return value


def _positive(value: Any) -> float:
    number = numeric(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ConfigError(f"cluster.exchanges: us must be numbers, got {value!r}")
    return float(number)


def held_out(table: ExchangeTable) -> list[tuple[int, float]]:
    """Return every second size between the first and the last, and how far off the others predict it, relative."""
    points = list(zip(table.contributed, table.us, strict=True))
    others = [point for i, point in enumerate(points) if i % 2 == 0 or i == len(points) - 1]
    curve = measured([size for size, _ in others], [us for _, us in others])
    odd = range(1, len(points) - 1, 2)
    return [(table.nbytes[i], curve(points[i][0]) / points[i][1] - 1) for i in odd]


def exchange_lines(tables: Sequence[ExchangeTable]) -> list[str]:
    """Return the `exchanges` of a cluster's file as lines of YAML; none without tables."""
    lines = ["exchanges:"] if tables else []
    for one in sorted(tables, key=lambda one: (one.collective, one.ranks)):
        lines += [
            f"  - collective: {one.collective}",
            f"    ranks: {one.ranks}",
            f"    ranks_per_node: {one.ranks_per_node}",
        ]
        lines += [f"    {key}: {json.dumps(value)}" for key in ("library", "source") if (value := getattr(one, key))]
        lines += [f"    bytes: {_flow(one.nbytes)}", f"    us: {_flow([float(f'{value:.6g}') for value in one.us])}"]
    return lines


def _flow(values: Sequence[float]) -> str:
    words = [str(int(value)) if float(value).is_integer() else repr(value) for value in values]
    rows = [", ".join(words[start : start + _IN_A_ROW]) for start in range(0, len(words), _IN_A_ROW)]
    return "[" + ",\n      ".join(rows) + "]"


@dataclass(frozen=True)
class Tabled:
    """What tables say of one cluster: curves by primitive, and which of them were measured or follow from one."""

    curves: Mapping[str, Curve]
    measured: Mapping[str, ExchangeTable]
    """Primitive -> its table."""
    derived: Mapping[str, str]
    """Primitive -> what it follows from, in words."""


def tabled(tables: Iterable[ExchangeTable], ranks: int, ranks_per_node: int, formulas: Mapping[str, Curve]) -> Tabled:
    """Return the curves of the tables that are of so many ranks, so placed; nothing where there are none.

    Messages between pairs are those of sendrecv only where each node has one rank or all ranks are in one: elsewhere
    ranks of a node share its cards. What was not measured follows the all-reduces: it takes what an all-reduce took
    that lasts as long by `formulas`, so that a size at which the library is slow is slow for all of them. Inside nodes
    are other links, about which all-reduces over several nodes say nothing.
    """
    here = {one.collective: one for one in tables if (one.ranks, one.ranks_per_node) == (ranks, ranks_per_node)}
    whole_names = ("all_reduce", "all_gather", "reduce_scatter")
    found: dict[str, ExchangeTable] = {name: here[name] for name in whole_names if name in here}
    if "alltoall" in here:
        found["all_to_all"] = here["alltoall"]
    inside = next((one for one in tables if one.collective == "sendrecv" and one.ranks == one.ranks_per_node), None)
    if inside is not None and inside.ranks == ranks_per_node:
        found["send_inside"] = inside
    if "sendrecv" in here and ranks_per_node in (1, ranks):
        found["send"] = here["sendrecv"]
    curves: dict[str, Curve] = {name: one.curve for name, one in found.items()}
    derived: dict[str, str] = {}
    if "all_gather" in curves:
        gather = curves["all_gather"]
        curves["all_gather_v"] = gather.later(gather(8.0))
        curves["all_gather_twice"] = type(gather)(
            tuple(2 * size for size in gather.sizes), tuple(2 * value for value in gather.seconds)
        )
        derived["all_gather_v"] = derived["all_gather_twice"] = "two all_gathers"
    if "all_reduce" in here:
        for name, formula in formulas.items():
            follows = name not in curves and (ranks == ranks_per_node or not name.endswith("_inside"))
            if follows and (curve := _following(formula, here["all_reduce"], formulas["all_reduce"])):
                curves[name], derived[name] = curve, "as an all_reduce that lasts as long by formulas"
    return Tabled(curves, found, derived)


def _following(formula: Curve, table: ExchangeTable, all_reduce: Curve) -> Curve | None:
    """Return the curve of a primitive with a formula alone; None for one that no size makes longer.

    `formula` is a line. Each size of the table gives a point: the bytes that last as long by the formula.
    """
    base_s, least = formula.seconds[0], table.nbytes[0] / table.ranks
    slope = (formula.seconds[-1] - base_s) / (formula.sizes[-1] - formula.sizes[0])
    if slope <= 0:
        return None
    lasting = [(all_reduce(size), 1e-6 * us) for size, us in zip(table.nbytes, table.us, strict=True)]
    lasting = [one for i, one in enumerate(lasting) if not i or one[0] > lasting[i - 1][0]]
    first_s, first_took_s = lasting[0]
    begin_s = base_s + slope * least
    took = measured([by for by, _ in lasting], [took for _, took in lasting]) if len(lasting) > 1 else None
    begin_took_s = took(begin_s) if took and begin_s > first_s else first_took_s * begin_s / first_s
    points = [(least, begin_took_s)] + [
        ((by - base_s) / slope, took_s) for by, took_s in lasting if by - base_s > slope * least * (1 + 1e-6)
    ]
    return measured([size for size, _ in points], [took_s for _, took_s in points]) if len(points) > 1 else None
