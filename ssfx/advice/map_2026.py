"""The user's place on the map of experiment=edition2026: what compression gained on such GPUs over such a network.

`ssfx/data/edition2026.json` holds the map; `python -m experiments.common.evaluation.set_ups` writes it from rows.
"""

from functools import cache
from math import log
from typing import Any

from ssfx.advice.checked import network_of
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.perf_model.cluster import Cluster

FILE = "edition2026.json"
PAGE = "docs/edition2026.md"


def gbps_per_device(cluster: Cluster) -> float:
    """Return the rate for each device of a node, between nodes if there are several, else inside: what was measured."""
    if cluster.busbw_gbps is not None:
        return cluster.busbw_gbps / (cluster.devices_per_node if cluster.nodes > 1 else 1)
    if cluster.nodes == 1:
        return cluster.intra.gbps
    return cluster.nics_per_node * cluster.inter.gbps / cluster.devices_per_node


def place_on_map(cluster: Cluster) -> str:
    """Return a sentence on the place of the map that is nearest to a cluster; "" where no such devices are on it."""
    family = cluster.device.partition("_")[0]
    network, gbps = network_of(cluster), gbps_per_device(cluster)
    here = [one for one in _map() if one["device"] == family and one["network"] == network]
    if not here:
        return ""
    near = min(here, key=lambda one: abs(log(one["gbps"] / gbps)))
    over = f"it ends sooner unless it needs over {near['affords']:.3g} times the steps"
    most = over if near["affords"] > 1 else "no step is shorter with it"
    return (
        f"of {near['models']} other models at {near['gbps']:.3g} Gbit/s per GPU, compression surely pays for "
        f"{near['wins']}; in the median {most} ({PAGE})"
    )


@cache
def _map() -> tuple[dict[str, Any], ...]:
    return tuple(read(data_dir() / FILE, loads)["places"])
