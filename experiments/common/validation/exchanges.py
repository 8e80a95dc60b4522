"""The formulas of exchanges, by what a user would say of the links, held against public logs of nccl-tests."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.common.validation.groups import Group, parts_by
from experiments.common.validation.scores import Pair
from ssfx.core.component_file import component_file
from ssfx.perf_model.cluster_file import cluster_of, with_options
from ssfx.perf_model.exchange_tables import sized, tables_of

NAME = "exchanges"
LEAST, MOST = 2**16, 2**28
"""Bytes between which sizes are scored: what gradients are sent in."""
BUCKETS = (2**23, 2**25)
"""Bytes of the buckets that DDP fills, 25 MiB by default, to the next powers of two."""


@dataclass(frozen=True)
class Hardware:
    """What a user would say of a cluster whose exchanges were measured, and the word for its network."""

    kind: str
    inside: str
    link: str = ""
    """Between nodes; "" where the rate of its cards is not known here: logs of one node only."""
    cards: int = 1


HARDWARE = {
    "abci_v100": Hardware("InfiniBand", "nvlink", "ib_rdma_100", 2),
    "abci_a100": Hardware("InfiniBand", "nvlink", "ib_rdma_200", 4),
    "sophia": Hardware("InfiniBand", "nvlink", "ib_rdma_200", 8),
    "azure_ndv4": Hardware("InfiniBand", "nvlink", "ib_rdma_200", 8),
    "polaris": Hardware("Slingshot", "nvlink", "slingshot_200", 2),
    "aws_p5": Hardware("other RDMA", "nvlink", "ib_rdma_400", 8),
    "gcp_a3_mega": Hardware("other RDMA", "nvlink", "ib_rdma_200", 8),
    "polaris_tcp": Hardware("TCP", "nvlink", "eth_100_tcp", 2),
    "azure_ndv4_tcp": Hardware("TCP over InfiniBand", "nvlink", "ib_tcp_200"),
    "snellius_h100": Hardware("", "nvlink"),
    "dgx_a100": Hardware("", "nvlink"),
    "rtx2080ti_pair": Hardware("", "pcie"),
}
"""Cards of a node by the sites' descriptions: two EDR and four HDR (ABCI), eight HDR (DGX A100, ND96asr_v4), two
Slingshot 11 of 200 Gbit/s (Polaris), EFA of 3,200 Gbit/s (p5.48xlarge), eight of 200 Gbit/s (a3-megagpu-8g). The kinds
of link of rtx2080ti_pair and azure_ndv4_tcp have their rates from these very logs."""


def exchanges() -> list[Group]:
    """Return one group: formulas from kinds of links against every shipped table, by kind of link, nodes and size."""
    pairs = tuple(pair for name, hardware in HARDWARE.items() for pair in _pairs(name, hardware))
    kinds = dict.fromkeys(pair.network for pair in pairs)
    nodes = ("one node", "two nodes", "more nodes")
    collectives = dict.fromkeys(pair.label for pair in pairs)
    sets = (
        *parts_by(kinds, lambda pair, kind: pair.network == kind),
        *parts_by(nodes, lambda pair, where: f" {where}," in pair.panel),
        *parts_by(collectives, lambda pair, collective: pair.label == collective),
        ("all_reduce of 8 to 32 MiB", lambda pair: pair.label == "all_reduce" and "bucket" in pair.sent),
    )
    return [
        Group(
            f"{NAME}: formulas of links held against public logs of nccl-tests",
            "kinds of links (ssfx/data/links.json) and the number of cards, as a user would say them; no table",
            f"tables of {len(HARDWARE)} clusters in conf/cluster, {sized(LEAST)} to {sized(MOST)}",
            pairs,
            sets,
            ("a cluster with tables is simulated with them, so these errors are of clusters without",),
        )
    ]


def _pairs(name: str, hardware: Hardware) -> Iterator[Pair]:
    node = component_file("cluster", name)
    bare = {key: value for key, value in node.items() if key not in ("exchanges", "small_allreduce_us")}
    for table in tables_of(node["exchanges"]):
        nodes = table.ranks // table.ranks_per_node
        primitive = {"alltoall": "all_to_all"}.get(table.collective, table.collective)
        if (nodes > 1 and not hardware.link) or primitive == "sendrecv":
            continue
        shape = {
            "nodes": nodes,
            "devices_per_node": table.ranks_per_node,
            "intra.link": hardware.inside,
            "nics_per_node": hardware.cards,
            **({"inter.link": hardware.link} if hardware.link else {}),
        }
        found = cluster_of(with_options(bare, shape), None, "auto")
        curve = replace(found, tables=()).formulas()[primitive]
        kind = f"{hardware.kind}, between nodes" if nodes > 1 else f"{found.intra.kind}, one node"
        where = {1: "one node", 2: "two nodes"}.get(nodes, "more nodes")
        for size, contributed, us in zip(table.nbytes, table.contributed, table.us, strict=True):
            if LEAST <= size <= MOST:
                yield Pair(
                    f"{name} {where}, {table.ranks} ranks, {table.collective} of {sized(size)}",
                    table.collective,
                    curve(contributed),
                    1e-6 * us,
                    whole_step=False,
                    network=kind,
                    sent=("bucket",) if BUCKETS[0] <= size <= BUCKETS[1] else (),
                )
