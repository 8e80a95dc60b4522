"""Set-ups that papers state, beside what conf/ has for them: clusters, devices, workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import yaml

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, held
from ssfx.core.case import ClusterChoice
from ssfx.core.paths import conf_dir
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.devices import device

NOWHERE = {"software": "a habit of measuring, not part of a simulated step"}


@cache
def cluster(name: str) -> Cluster:
    """Return a cluster of conf/cluster as it stands there."""
    return cluster_on(ClusterChoice(name), None, "auto")


def memory_gb(cluster_name: str) -> float:
    """Return the memory of one device there, in GB."""
    return float(device(cluster(cluster_name).device).memory_gib)


@cache
def workload(name: str) -> Mapping[str, Any]:
    """Return what conf/workload/<name>.yaml says."""
    found: Mapping[str, Any] = yaml.safe_load((conf_dir() / "workload" / f"{name}.yaml").read_text())
    return found


def epochs(name: str) -> float:
    """Return how many epochs conf/workload/<name>.yaml trains."""
    return float(workload(name)["workload"]["epochs"])


def decays(name: str) -> list[float]:
    """Return the epochs after which the learning rate falls there."""
    return [round(at * epochs(name), 3) for at in workload(name)["milestones"]]


def judge_setup(artifact: str, here: Mapping[str, Callable[[], float | tuple[float, float]]], why: Mapping[str, str],
                otherwise: str = NOWHERE["software"]) -> list[Verdict]:  # fmt: skip
    """Return a verdict for every claim of a set-up: `here` gives what is configured, `why` says why nothing is."""
    found = []
    for claim in claims_of(artifact):
        if claim.id in here:
            found.append(held(claim.id, here[claim.id](), tolerance=0.0))
        else:
            found.append(absent(claim.id, why.get(claim.id, otherwise)))
    return found


@cache
def experiment(name: str) -> Mapping[str, Any]:
    """Return what conf/experiment/<name>.yaml says."""
    found: Mapping[str, Any] = yaml.safe_load((conf_dir() / "experiment" / f"{name}.yaml").read_text())
    return found
