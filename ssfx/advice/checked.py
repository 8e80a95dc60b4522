"""Where predicted steps were held against steps that somebody took: kinds of network and numbers of ranks."""

from dataclasses import dataclass

from ssfx.perf_model.cluster import Cluster

CPUS = "CPUs"


@dataclass(frozen=True)
class Checked:
    """Whole steps on some ranks of a kind of network at some line rates, and whose steps they were."""

    network: str
    least: int
    most: int
    source: str
    gbps: tuple[float, float] | None = None
    """Line rates between nodes; None where there is no network."""


CHECKED = (
    Checked("GPUs of one machine", 2, 8, "MergeComp"),
    Checked("GPUs over TCP", 8, 64, "ACP-SGD, S2 Reducer", (1.0, 10.0)),
    Checked("GPUs over RDMA", 32, 32, "ACP-SGD Fig. 13", (100.0, 100.0)),
    Checked(CPUS, 2, 4, "recorded runs"),
)
"""What `ssfx validate` scores; a test holds them against its groups."""


def network_of(cluster: Cluster) -> str:
    """Return the kind of network that the ranks of a cluster exchange over."""
    if cluster.device == "cpu":
        return CPUS
    if cluster.nodes == 1:
        return "GPUs of one machine"
    if cluster.tables:
        return "GPUs over measured links"
    return f"GPUs over {'RDMA' if cluster.inter.rdma else 'TCP'}"


def where_checked(cluster: Cluster) -> str:
    """Return on which ranks of such a network steps were checked, and whether these are among them."""
    network, ranks = network_of(cluster), cluster.world_size
    found = next((one for one in CHECKED if one.network == network), None)
    if found is None:
        return f"steps of {network} were never checked"
    said = f"steps of {network} were checked on {_span(found.least, found.most)} ranks"
    beyond = [] if found.least <= ranks <= found.most else [f"on {ranks} ranks"]
    if found.gbps:
        said += f" at {_span(*found.gbps)} Gbit/s"
        beyond += [] if found.gbps[0] <= cluster.inter.gbps <= found.gbps[1] else [f"at {cluster.inter.gbps:g} Gbit/s"]
    return f"{said} ({found.source})" + (f", never {' or '.join(beyond)}" if beyond else "")


def _span(least: float, most: float) -> str:
    return f"{least:g} to {most:g}" if least < most else f"{most:g}"
