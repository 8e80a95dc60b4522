"""From a request to the points of its grid: single-valued overrides, composed by Hydra one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ssfx.config.groups import GROUPS, choices, options, register
from ssfx.config.overrides import Request, check
from ssfx.errors import ConfigError
from ssfx.paths import conf_dir

Point = dict[str, Any]
"""One value for every key that the user or the experiment chose."""


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


def compose(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete configuration of one point as plain data, interpolations resolved."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import ConfigCompositionException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    # Hydra leaves a group whose default is null out, and takes no null for it.
    words = [f"{key}={_spell(value)}" for key, value in point.items() if key not in GROUPS or value is not None]
    with initialize_config_dir(config_dir=str(conf_dir().resolve()), version_base="1.3"):
        try:
            config = hydra_compose("config", words)
        except ConfigCompositionException as error:
            # Every key and value was checked before; what is left is an option that another choice of the group has.
            if not isinstance(error.__cause__, OmegaConfBaseException):
                raise
            raise _no_option(str(error.__cause__.full_key)) from None
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _no_option(key: str) -> ConfigError:
    group, _, option = key.partition(".")
    have = " or ".join(f"{group}={name}" for name in choices(group) if option in options(group, name))
    return ConfigError(f"the chosen {group} has no option {option}; choose {have}, or drop {key}")


def _product(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[Point]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _spell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    return repr(value)
