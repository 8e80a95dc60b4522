"""Scheme, compressor, memory and density of one point: defaults filled in, impossible pairs refused."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ssfx.compressors import Compressor, build, compressors
from ssfx.compressors.memories import check_pair, memories
from ssfx.compressors.memories.base import check_chosen_memory
from ssfx.config.compose import Point
from ssfx.config.groups import defaults
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster import Cluster
from ssfx.planning.sharding import Sharding
from ssfx.schemes import Scheme, schemes
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.transport import check_density, keeps_fraction

SPARSE_KEYS = ("compressor", "density", "memory")
"""What a dense baseline of a sweep has none of."""


@dataclass(frozen=True)
class Components:
    """The components of one run as specs; `scheme_options` holds what differs from the scheme's defaults."""

    scheme: str
    scheme_options: Mapping[str, Any]
    compressor: str | None
    memory: str | None
    density: float | None

    @property
    def plan_options(self) -> dict[str, Any]:
        """The options that `ssfx.schemes.make_plan.make_plan` takes."""
        density = {} if self.density is None else {"density": self.density}
        compressor = {} if self.compressor is None else {"compressor": self.compressor}
        return {**self.scheme_options, **compressor, **density}


def without_sparse_keys(point: Point) -> Point:
    """Return `point` without what selects, compresses or remembers elements: the point of a dense baseline."""
    return {key: value for key, value in point.items() if key.partition(".")[0] not in SPARSE_KEYS}


def completed(points: Sequence[Point]) -> tuple[list[Point], tuple[str, ...], tuple[str, ...]]:
    """Return points with their compressors and memories, without what has no effect, and Job's two lists of whom.

    Dense schemes beside sparse ones are baselines, to which compressor, density and memory do not apply; nor does
    density to compressors that send every element beside others.
    """
    names = list(dict.fromkeys(point["scheme"] for point in points))
    dense = tuple(name for name in names if schemes[name].dense)
    baselines = dense if len(dense) < len(names) else ()
    found = [complete(without_sparse_keys(point) if point["scheme"] in baselines else point) for point in points]
    without_density = _without_density(found)
    for point in found:
        if point["compressor"] in without_density:
            point.pop("density", None)
    return found, baselines, without_density


def _without_density(points: Iterable[Point]) -> tuple[str, ...]:
    """Return the compressors that send every element, if there are others among the points of a sweep."""
    names = list(dict.fromkeys(point["compressor"] for point in points if point["compressor"] is not None))
    whole = tuple(name for name in names if not keeps_fraction(name))
    return whole if len(whole) < len(names) else ()


def complete(point: Point) -> Point:
    """Return `point` with the compressor and the memory it implies."""
    scheme = schemes[point["scheme"]]
    chosen = {**point}
    if chosen.get("compressor") is None:
        chosen["compressor"] = scheme.compressor
    if chosen["compressor"] is None and scheme.chooses:
        chosen["memory"] = chosen.get("memory") or "residual"
    elif chosen["compressor"] is None:
        for key, value in point.items():
            if key == "density" and value is not None:
                scheme.options({"density": value})
            if key.partition(".")[0] in ("memory", "compressor") and value is not None:
                raise ConfigError(
                    f"scheme={scheme.name} compresses nothing by default, so {key}={value} would have no effect; "
                    f"drop it, set compressor=fp16, or choose scheme=per_tensor"
                )
        chosen["memory"] = None
    elif chosen.get("memory") is None:
        compressor = build(_spec("compressor", chosen["compressor"], chosen))
        chosen["memory"] = "residual" if compressor.error_feedback and not compressor.lossless else "none"
    return chosen


def components(config: Mapping[str, Any], density: float | None, *, asked: bool) -> Components:
    """Return the components that a composed configuration names.

    ConfigError when the user `asked` for this density and it has no effect; an experiment's applies where it can.
    """
    scheme = schemes[config["scheme"]["name"]]
    given = {key: value for key, value in config["scheme"].items() if key != "name"}
    usual = defaults("scheme", scheme.name)
    changed = {key: value for key, value in given.items() if value != usual[key]}
    typed = asdict(scheme.options(changed))  # refuses wrong types and values
    # Ids of runs hold an int where a float is meant as it was written; what a text spells is its number.
    read = {key: value if isinstance(value, int) else typed[key] for key, value in changed.items()}
    changed = {key: value for key, value in read.items() if value != usual[key]}
    compressor = _node_spec(compressors, config.get("compressor"))
    if compressor is None and scheme.chooses:
        return _chosen_later(scheme, changed, config, density, asked)
    if compressor is None:
        return Components(scheme.name, changed, None, None, None)
    memory = _node_spec(memories, config.get("memory"))
    assert memory is not None
    _check_dense(scheme, build(compressor))
    check_pair(memories.build(memory), build(compressor))
    return Components(scheme.name, changed, compressor, memory, _density(scheme, compressor, density, asked))


def _chosen_later(
    scheme: Scheme, changed: Mapping[str, Any], config: Mapping[str, Any], density: float | None, asked: bool
) -> Components:
    """Return the components of a scheme that chooses compressors itself, to which only a density that the user `asked`
    for applies: without one it has another budget."""
    memory = _node_spec(memories, config.get("memory"))
    assert memory is not None
    check_chosen_memory(scheme.name, memories.build(memory))
    density = density if asked else None
    scheme.options({**changed, **({} if density is None else {"density": density})})
    return Components(scheme.name, changed, None, memory, density)


def on_nodes(parts: Components, cluster: Cluster, shared: Sharding | None) -> Components:
    """Return `parts` with nodes as large as those of `cluster`, where the scheme asks for that and has no number.

    Replicas of one shard (hsdp) do not share a node.
    """
    devices = cluster.devices_per_node if cluster.nodes > 1 and (shared is None or shared.kind == "fsdp") else 0
    options = schemes[parts.scheme].for_nodes(parts.scheme_options, devices)
    return replace(parts, scheme_options=options)


def _density(scheme: Scheme, compressor: str, density: float | None, asked: bool) -> float | None:
    if density is not None and asked:
        scheme.options({"density": density})  # raises the one line for dense schemes
        check_density(compressor, density)
    defaults = scheme.defaults
    if not keeps_fraction(compressor):
        return None
    if not isinstance(defaults, CompressOptions):
        return density if scheme.chooses else None
    return defaults.density if density is None else density


def _check_dense(scheme: Scheme, compressor: Compressor) -> None:
    if scheme.dense and not compressor.additive:
        raise ConfigError(
            f"scheme={scheme.name} adds gradients on the way, which {compressor.name} payloads do not allow; "
            f"use compressor=fp16, or scheme=per_tensor compressor={compressor.name}"
        )
    if scheme.dense and keeps_fraction(compressor.name):
        raise ConfigError(
            f"scheme={scheme.name} sends every element and {compressor.name} selects some; "
            f"use compressor=fp16, or scheme=per_tensor compressor={compressor.name}"
        )


def _node_spec(catalog: Any, node: Mapping[str, Any] | None) -> str | None:
    if node is None:
        return None
    return str(catalog.canonical(node["name"], {key: value for key, value in node.items() if key != "name"}))


def _spec(group: str, name: str, point: Point) -> str:
    catalog = compressors if group == "compressor" else memories
    given = {key.partition(".")[2]: value for key, value in point.items() if key.startswith(f"{group}.")}
    return str(catalog.canonical(name, given))
