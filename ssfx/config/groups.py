"""The configuration groups and their choices: YAML folders of conf/, and groups generated from the registries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from ssfx.core.errors import unknown
from ssfx.core.paths import conf_dir

YAML_GROUPS = ("cluster", "experiment", "preset", "workload")
COMPONENT_GROUPS = ("compressor", "dataset", "engine", "memory", "model", "scheme")
GROUPS = tuple(sorted(YAML_GROUPS + COMPONENT_GROUPS))
OPTION_GROUPS = ("cluster", "compressor", "dataset", "memory", "scheme")
"""Groups whose choices have options of their own, written group.option=value."""

CLUSTER_OPTIONS = (
    "nodes", "devices_per_node", "device", "nics_per_node", "calibration",
    *(f"{link}.{key}" for link in ("intra", "inter") for key in ("gbps", "efficiency", "latency_s")),
)  # fmt: skip


@cache
def choices(group: str) -> tuple[str, ...]:
    """Return the names that may be written after `group=`, sorted."""
    if group in YAML_GROUPS:
        return tuple(sorted(path.stem for path in (conf_dir() / group).glob("*.yaml")))
    names = [entry.name for entry in registry(group)]
    return tuple(sorted(["auto", *names] if group == "engine" else names))


def file_summary(group: str, name: str) -> str:
    """Return the summary of a choice of a YAML group, read from its line: a listing need not import a YAML parser."""
    lines = (conf_dir() / group / f"{name}.yaml").read_text().splitlines()
    return next(text.strip() for key, _, text in (line.partition(":") for line in lines) if key.strip() == "summary")


def check_choice(group: str, name: Any) -> str:
    """Return `name` when it is a choice of `group`; else ConfigError with the nearest one."""
    if str(name) not in (choices(group) if group in YAML_GROUPS or name == "auto" else registry(group)):
        raise unknown(group, str(name), choices(group))
    return str(name)


@cache
def options(group: str, name: str) -> Mapping[str, Any]:
    """Return the options of one choice with their defaults, without `compressor` and `density`, which are keys."""
    if group == "cluster":
        return dict.fromkeys(CLUSTER_OPTIONS)
    entry = registry(group)[name]
    if group == "scheme":
        return {key: value for key, value in asdict(entry.defaults).items() if key not in ("compressor", "density")}
    return asdict(entry.options) if group in OPTION_GROUPS else {}


def registry(group: str) -> Any:
    """Return the registry behind a generated group."""
    # Late imports: a command that completes `preset=` has no use for the compressors.
    if group == "scheme":
        from ssfx.schemes import schemes

        return schemes
    if group == "compressor":
        from ssfx.compressors import compressors

        return compressors
    if group == "memory":
        from ssfx.memories import memories

        return memories
    if group == "engine":
        from ssfx.engines import engines

        return engines
    from ssfx import workloads

    return workloads.models if group == "model" else workloads.datasets
