"""From a request to the points of its grid, each with one value for every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ssfx.config.compose import Point, compose
from ssfx.config.overrides import Request, check
from ssfx.errors import ConfigError


@dataclass(frozen=True)
class Grid:
    """The points of one experiment and the values that each axis takes over all of them."""

    experiment: str
    points: tuple[Point, ...]
    axes: Mapping[str, tuple[Any, ...]]


def grid(request: Request) -> Grid:
    """Return the grid of the requested experiment; a value that the user gave replaces the experiment's axis.

    An `also` entry of the experiment adds points outside the grid; it is left out when the user chose one of its keys.
    """
    names = request.get("experiment", ())
    if len(names) > 1:
        raise ConfigError("one command runs one experiment; start ssfx run once for each")
    base = compose({"experiment": names[0]} if names else {})
    experiment = base["experiment"]
    swept = {key: check(key, values) for key, values in experiment["sweep"].items()}
    axes = {**swept, **request}
    axes.setdefault("scheme", (base["scheme"]["name"],))
    for key in ("model", "dataset"):
        if key in request and len(axes.get("workload", ())) > 1:
            raise ConfigError(
                f"experiment={experiment['name']} runs several workloads, each with its own {key}; "
                f"choose one with workload=... as well as {key}=..."
            )
    extra = [entry for entry in experiment["also"] if not set(entry) & set(request)]
    points = list(_product(axes))
    for entry in extra:
        points += _product({**axes, **{key: check(key, (value,)) for key, value in entry.items()}})
    return Grid(experiment["name"], tuple(points), axes)


def single(request: Request, command: str) -> Point:
    """Return the one point of a request without sweeps; ConfigError for a comma list."""
    for key, values in request.items():
        if len(values) > 1:
            raise ConfigError(
                f"ssfx {command} shows one case, got {len(values)} values of {key}; choose {key}={values[0]}"
            )
    return {key: values[0] for key, values in request.items()}


def _product(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[Point]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
