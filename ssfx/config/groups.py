"""The configuration groups, the names that may be chosen from each, and what a chosen name stands for."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.config.other_words import (
    as_a_link,
    described,
    digits,
    link_in,
    machine,
    model_of_kind,
    model_of_size,
    no_sheet,
)
from ssfx.core import slurm_site
from ssfx.core.component_file import component_file, file_names, is_file, leaves_folder, outside, path_of
from ssfx.core.errors import ConfigError, near, nearest, plain, unknown
from ssfx.core.files import as_it_is, text_of
from ssfx.core.paths import conf_dirs
from ssfx.core.plugins import provided
from ssfx.core.spec import Spec

YAML_GROUPS = ("cluster", "experiment", "preset", "workload")
"""Groups whose choices are files and nothing else."""
COMPONENT_GROUPS = ("compressor", "dataset", "engine", "memory", "model", "scheme")
"""Groups whose choices are registered in Python; a file gives one of them other values, under a name of its own."""
GROUPS = tuple(sorted(YAML_GROUPS + COMPONENT_GROUPS))
OPTION_GROUPS = ("cluster", "compressor", "dataset", "memory", "scheme")
"""Groups whose choices have options of their own, written group.option=value."""
WITH_SPECS = tuple(group for group in OPTION_GROUPS if group in COMPONENT_GROUPS)
"""Groups whose choices may be written with their options, as in compressor=dgc(value_dtype=float16)."""

_FIGURES = {
    "2": "missing_rate",
    "4": "compressors",
    "5": "selective",
    "9": "collective_scaling",
    "11": "throughput",
    "12": "long_quality",
    "13": "breakdown",
    "14": "compressors",
    "15": "density",
    "16": "bandwidth",
    "17": "large_models",
}
"""Experiments by SSFusion's figures."""
_EXPERIMENTS = (
    *("throughput", "long_quality", "breakdown", "compressors", "density", "bandwidth", "large_models"),
    "profiling_overhead",
)
"""SSFusion's experiments, from the first on."""
_EXPERIMENTS_OF = f"{', '.join(_EXPERIMENTS)} of SSFusion, acpsgd_models, mergecomp_clusters, micro_clusters, s2_sparse"
OTHER_CHOICES: Mapping[str, Mapping[str, str]] = {
    "model": {"gpt2_small": "gpt2", "gpt-2-small": "gpt2", "resnet-50": "resnet50", "llama": "llama3_8b"},
    "compressor": dict.fromkeys(("none", "dense", "identity"), "null"),
    "engine": dict.fromkeys(("mpi", "nccl", "gloo", "local", "real"), "torchrun"),
    "cluster": {"localhost": "local", "a3-mega": "gcp_a3_mega", "a3-megagpu-8g": "gcp_a3_mega"}
    | dict.fromkeys(("p5.48xlarge", "p5", "aws-p5"), "aws_p5")
    | dict.fromkeys(("nd96asr_v4", "nd96asr_a100_v4", "ndv4"), "azure_ndv4"),
    "experiment": {"convergence": "long_quality"}
    | {f"{word}{number}": name for number, name in enumerate(_EXPERIMENTS, 1) for word in ("exp", "experiment")}
    | {f"{paper}fig{number}": name for number, name in _FIGURES.items() for paper in ("", "ssfusion.")},
}
"""What people call some of the choices."""

CLUSTER_OPTIONS = (
    *("nodes", "devices_per_node", "device", "nics_per_node", "calibration", "busbw_gbps", "small_allreduce_us"),
    *("compressor_call_ms", "message_us", "host_us"),
    *(f"{link}.{key}" for link in ("intra", "inter") for key in ("link", "gbps", "efficiency", "latency_s")),
    *slurm_site.OPTIONS,
)


def choices(group: str) -> tuple[str, ...]:
    """Return the names that may be written after `group=`, sorted."""
    return _choices(group, conf_dirs())


@cache
def _choices(group: str, _folders: tuple[Path, ...]) -> tuple[str, ...]:
    names = set(file_names(group))
    return tuple(sorted(names if group in YAML_GROUPS else names.union(registry(group).names())))


def file_summary(group: str, name: str) -> str:
    """Return the summary of a choice of a YAML group, read from its line: a listing need not import a YAML parser."""
    path = path_of(group, name)
    lines = text_of(path, ConfigError).splitlines() if path else []
    summaries = (text.strip() for key, _, text in (line.partition(":") for line in lines) if key.strip() == "summary")
    return next(summaries, "")


def check_choice(group: str, value: Any) -> str:
    """Return `value` when it is a choice of `group`, with options where it may have some; else ConfigError."""
    text = str(value)
    spec = Spec.parse(text, group) if group in WITH_SPECS else Spec(text)
    name = spec.name
    if not exists(group, name):
        if leaves_folder(name) and not is_file(name):
            raise outside(group, name)
        if group == "cluster":
            raise _no_cluster(name)
        if group == "model" and name.endswith(".py"):
            raise ConfigError(f"model={name} is a file; name its function that returns (model, batch): {name}:FUNCTION")
        if group == "scheme":
            from ssfx.schemes.other_words import no_scheme  # late: it knows every scheme and compressor

            raise no_scheme(name)
        if group == "model" and plain(name) not in map(plain, OTHER_CHOICES["model"]):
            sized, close = model_of_size(name), near(name, choices("model"))
            if sized or not close:
                raise ConfigError(f"unknown model {name!r}; {sized or model_of_kind(name)}")
        known = registry(group) if group in COMPONENT_GROUPS else None
        if group == "compressor" and known and known.numbered(name):
            known[name]  # says which options are in a name
        others = {**(known.others if known else {}), **OTHER_CHOICES.get(group, {})}
        nearest_of = known.nearest_of if known else _EXPERIMENTS_OF if group == "experiment" else ""
        error = unknown(group, name, choices(group), others, nearest_of)
        own = "; or count your own: model=FILE.py:FUNCTION" if group == "model" else ""
        raise ConfigError(f"{str(error).removesuffix('?')}{own}") if own else error
    return text if spec.options else name


def _no_cluster(name: str) -> ConfigError:
    """Return the error for a cluster that is not there, which says how to describe one of so many GPUs."""
    if is_file(name):
        return ConfigError(f"cluster={name}: there is no file {Path(name).expanduser().resolve()}")
    if Path(name).suffix in (".log", ".out", ".txt", ".csv") or (Path(name).suffix and Path(name).is_file()):
        return ConfigError(
            f"cluster={name} is no file of a cluster, which ends in .yaml; make one of a log of nccl-tests with "
            f"ssfx cluster import {name}"
        )
    if Path(f"{name}.yaml").is_file():
        return ConfigError(f"unknown cluster {name!r}; did you mean cluster={name}.yaml, the file that is here?")
    if (same := near(name, choices("cluster"))[:1]) and same[0] == name.lower():
        return ConfigError(f"unknown cluster {name!r}; did you mean {same[0]!r}?")
    if words := described(name):
        return ConfigError(f"unknown cluster {name!r}; write cluster=box {words}")
    machines = r"(\d+)[ _-]?(?:x[ _-]?(\d+)|(?:nodes?|machines?|hosts?|servers?)(?:[ _x-]+(\d+)[ _-]?gpus?)?)"
    if several := re.fullmatch(machines + r"(?:[ _@-]+(\w+))?", digits(name)):
        each = several[2] or several[3] or 8
        return ConfigError(
            f"unknown cluster {name!r}; for {several[1]} machine(s) of {each} GPUs write cluster=box cluster.nodes="
            f"{several[1]} cluster.devices_per_node={each} cluster.device=a100 "
            f"cluster.inside=pcie cluster.link={link_in(several[4] or '')}"
        )
    if gpus := re.fullmatch(r"(\d+)[x_ -]?(?:gpus?|(?P<device>[a-z]+\d+\w*))?", name.lower()):
        on = gpus["device"] or "a100"
        close, count = nearest(f"{gpus[1]}gpu", choices("cluster")), int(gpus[1])
        meant = f"did you mean {close!r}? " if close and not gpus["device"] else ""
        each = 8 if count > 8 and count % 8 == 0 else count
        machines = "one machine" if each == count else f"{count // each} machines of {each}"
        link = "" if each == count else " cluster.link=25gbe_tcp"
        return ConfigError(
            f"unknown cluster {name!r}; {meant}to describe {count} GPUs in {machines} write "
            f"cluster=box cluster.nodes={count // each} cluster.devices_per_node={each} cluster.device={on} "
            f"cluster.inside=pcie{link}"
        )
    if name.lower() in OTHER_CHOICES["cluster"]:
        return unknown("cluster", name, choices("cluster"), OTHER_CHOICES["cluster"])
    if words := machine(name):
        return ConfigError(f"unknown cluster {name!r}; nearest by numbers: cluster=box {words}")
    if words := as_a_link(name):
        return ConfigError(f"unknown cluster {name!r}, which is a link; write cluster=box {words}")
    if re.match(r"emulated_\d", name.lower()):
        emulated = ", ".join(one for one in choices("cluster") if one.startswith("emulated_"))
        return ConfigError(f"unknown cluster {name!r}; emulated ones are {emulated}")
    if name.lower() == "slurm":
        return ConfigError(
            "Slurm is no cluster but an engine: write engine=slurm, and cluster= says what its nodes are"
        )
    if no_sheet(name):
        return ConfigError(
            f"unknown cluster {name!r}; ssfx has data sheets of GPUs alone: describe yours in FILE.yaml, and write "
            "cluster=box cluster.nodes=2 cluster.devices_per_node=8 cluster.device=FILE.yaml cluster.link=25gbe_tcp"
        )
    likely = [one for one in near(name, choices("cluster")) if re.findall(r"\d", one) == re.findall(r"\d", name)]
    likely = likely or [one for one in choices("cluster") if re.fullmatch(rf"{re.escape(name.lower())}_\w+", one)]
    meant = f"did you mean {' or '.join(map(repr, likely))}? " if likely else ""
    return ConfigError(
        f"unknown cluster {name!r}; {meant}to describe yours write cluster=box "
        "cluster.nodes=2 cluster.devices_per_node=8 cluster.device=a100 cluster.inside=nvlink cluster.link=25gbe_tcp; "
        "ssfx list clusters has all"
    )


def exists(group: str, name: str) -> bool:
    """Return whether `name` may be chosen from `group`: by a file, or because a component is registered so.

    Hydra asks for "None" where a default is null: no component is called so, and none need be imported to know that.
    """
    return path_of(group, name) is not None or (
        group in COMPONENT_GROUPS and name != "None" and name in registry(group)
    )


def options(group: str, choice: str) -> Mapping[str, Any]:
    """Return the options that a choice has, by the values it gives them; see `node`."""
    if group == "cluster":
        return dict.fromkeys(CLUSTER_OPTIONS)
    return {key: value for key, value in node(group, choice).items() if key != "name"}


def node(group: str, choice: str) -> Mapping[str, Any]:
    """Return the name of the component that `choice` stands for, and the value of each of its options.

    Options that a file does not name are the component's defaults. ConfigError for one that the component has not.
    """
    path = path_of(group, choice)
    return _node(group, choice, path, as_it_is(path) if path else "", conf_dirs())


@cache
def _node(group: str, choice: str, path: Path | None, _as_it_is: str, _folders: tuple[Path, ...]) -> Mapping[str, Any]:
    said = component_file(group, choice) if path else {"name": choice}
    if group == "cluster":
        return {**said, "name": choice}
    name = said["name"]
    if not isinstance(name, str):
        raise ConfigError(f"{path}: name must be that of a {group}, got {name!r}")
    others = [key for key in said if key != "name"]
    if path and name != "auto" and name not in registry(group):
        if slip := next((key for key in others if nearest(key, ["name"])), None):
            raise ConfigError(f"{path}: unknown key {slip!r}; did you mean 'name'?")
        raise ConfigError(f"{path}: name: {unknown(group, name, registry(group).names())}")
    usual = defaults(group, name)
    for key in others:
        if key in usual:
            continue
        if group == "scheme" and key in ("compressor", "density"):
            raise ConfigError(f"{path}: {key} is a key of its own: write {key}={said[key]} in the command")
        if not usual:
            raise ConfigError(f"{path}: {group} {name} has no options, so {key} means nothing; drop it")
        raise ConfigError(f"{path}: {unknown(f'option of {group} {name}', key, [*usual, 'name'])}")
    return {"name": said["name"], **usual, **said}


@cache
def defaults(group: str, name: str) -> Mapping[str, Any]:
    """Return the options of a registered component, without `compressor` and `density`, which are keys of their own."""
    if name == "auto" and group == "engine":
        return {}
    entry = registry(group)[name]
    if group == "scheme":
        return {key: value for key, value in asdict(entry.defaults).items() if key not in ("compressor", "density")}
    return asdict(entry.options) if group in OPTION_GROUPS else {}


def registry(group: str) -> Any:
    """Return the registry behind a component group."""
    # Late imports: a command that completes `preset=` has no use for the compressors.
    if group == "scheme":
        from ssfx.schemes import schemes

        return schemes
    if group == "compressor":
        from ssfx.compressors import compressors

        return compressors
    if group == "memory":
        from ssfx.compressors.memories import memories

        return memories
    provider = provided("ssfx.registries", group)
    assert provider is not None, f"no part of ssfx offers components of group {group}"
    return provider
