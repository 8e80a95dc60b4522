"""What ssfx has for set-ups that papers state, in conf/: clusters, devices, workloads; and counted compressors."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import yaml

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, held
from ssfx.core.case import ClusterChoice
from ssfx.core.files import read_json
from ssfx.core.paths import conf_dir, data_dir
from ssfx.lab.workloads.schedule import STEP_FACTOR
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.devices import device
from ssfx.schemes import schemes

NOWHERE = "a habit of measuring, not part of a simulated step"


@cache
def cluster(name: str) -> Cluster:
    """Return a cluster of conf/cluster as it stands there."""
    return cluster_on(ClusterChoice(name), None, "auto")


@cache
def conf(kind: str, name: str) -> Mapping[str, Any]:
    """Return what conf/<kind>/<name>.yaml says."""
    found: Mapping[str, Any] = yaml.safe_load((conf_dir() / kind / f"{name}.yaml").read_text())
    return found


def taken(here: str) -> float:
    """Return the value that ssfx takes for a setting: kind, name and key, as "workload vgg16_cifar10 lr".

    Kinds are cluster, workload and experiment, by their files in conf/, scheme, by its options' defaults, and constant,
    by the module that has it. A key may be dotted; GPUs, memory_gb, decay1, decay2, decay_factor and warmup_epochs are
    worked out.
    """
    kind, name, key = here.split()
    found: Any
    if kind == "cluster":
        found = cluster(name)
        if key == "memory_gb":
            found = device(found.device)
        key = {"memory_gb": "memory_gib", "GPUs": "world_size"}.get(key, key)
    elif kind == "constant":
        return float(getattr(import_module(name), key))
    elif kind == "workload" and key in WORKED_OUT:
        return WORKED_OUT[key](conf(kind, name))
    else:
        found = schemes[name].options({}) if kind == "scheme" else conf(kind, name)
    for part in key.split("."):
        if isinstance(found, Mapping):
            found = found[part]
        else:
            found = found[int(part)] if part.isdigit() else getattr(found, part)
    return float(found)


WORKED_OUT: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "epochs": lambda said: float(said["workload"]["epochs"]),
    "decay1": lambda said: round(said["milestones"][0] * float(said["workload"]["epochs"]), 3),
    "decay2": lambda said: round(said["milestones"][1] * float(said["workload"]["epochs"]), 3),
    "decay_factor": lambda _: STEP_FACTOR,
    "warmup_epochs": lambda said: round(said["lr_warmup"] * float(said["workload"]["epochs"]), 3),
}
"""Of a workload's settings, those that its file has in other words."""


def settings(artifact: str, here: Mapping[str, float] | None = None, but: Collection[str] = ()) -> list[Verdict]:
    """Return a verdict for every setting of an artifact, by the ledger's `here` and `not_here`.

    `here` gives values that take more than a name, by claim; claims of `but` are left out.
    """
    found = []
    for claim in claims_of(artifact):
        if claim.id in but:
            continue
        if here and claim.id in here:
            found.append(held(claim.id, here[claim.id], tolerance=0.0))
        elif claim.here:
            found.append(held(claim.id, taken(claim.here), tolerance=0.0))
        else:
            found.append(absent(claim.id, claim.not_here or NOWHERE))
    return found


# ---- what one call of a compressor does on a device, as counted by benchmarks/count_operators.py ---------------------


@cache
def _counted() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_json(data_dir() / "costs" / "counted.json")
    return found


def bytes_per_element(compressor: str) -> float:
    """Return the bytes that compressing moves for each element of the gradient, matrix products left out."""
    return float(_counted()[compressor]["device"]["nbytes"])


def products(compressor: str) -> int:
    """Return how many products with the whole gradient matrix compressing takes, without the reconstruction."""
    on = _counted()[compressor]["device"]
    return len(on["products"]) - len(on["decode"]["products"])


def orthogonalisations(compressor: str) -> int:
    """Return how many orthonormal bases compressing one matrix takes."""
    counted = _counted()[compressor]
    return int(counted["device"]["bases"] / counted["rank"])
