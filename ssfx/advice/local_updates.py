"""What ssfx does not answer: slow links are where others exchange weights now and then, in place of gradients."""

from __future__ import annotations

from ssfx.advice.map_2026 import gbps_per_device
from ssfx.perf_model.cluster import Cluster

MOST_GBPS = 10.0
"""Line rate for each device at or below which they are named: above it no source has a gain."""
PUBLISHED = (
    "DiLoCo sends 500 times fewer messages, on models of 35 M to 2.4 B parameters (arXiv 2311.08105, 2503.09799); "
    "SparseLoCo 97 to 146 times fewer bytes, on 512 M and 72 B (2508.15706, 2603.08163); MuLoCo an eighth of DiLoCo's, "
    "on 150 M to 15 B (2505.23725)"
)


def local_updates(cluster: Cluster) -> str:
    """Return what follows on methods of local updates, for a cluster with slow links between nodes; "" for another.

    The numbers are their authors'. It is no recommendation: nothing here runs such a method, nor knows its time.
    """
    if cluster.nodes == 1 or gbps_per_device(cluster) > MOST_GBPS:
        return ""
    return (
        f" Not compared: methods that exchange weights after many steps. As published, {PUBLISHED}. "
        "ssfx neither runs nor prices them."
    )
