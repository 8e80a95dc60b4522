"""From a request to its points, each with one value for every key."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from ssfx.config.compose import Point, expanded
from ssfx.config.overrides import Request
from ssfx.core.errors import ConfigError


def points_of(request: Request) -> list[Point]:
    """Return all combinations of the values of a request."""
    return list(product_of(request))


def single(request: Request, command: str) -> Point:
    """Return the one point of a request without sweeps; ConfigError for a comma list."""
    for key, values in request.items():
        if len(values) > 1:
            raise ConfigError(
                f"ssfx {command} shows one case, got {len(values)} values of {key}; choose {key}={values[0]}"
            )
    return expanded({key: values[0] for key, values in request.items()})


def product_of(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[Point]:
    """Yield a point for every combination of the values of the axes."""
    for values in product(*axes.values()):
        yield expanded(dict(zip(axes, values, strict=True)))
