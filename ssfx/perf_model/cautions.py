"""What must be said with an answer: another GPU's profile, waiting in it, a host that holds it, a cluster far away."""

from collections.abc import Iterator

from ssfx.core.origin import BEWARE
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.devices import device, sheet_named
from ssfx.planning.profile import Profile

CHECKED_RANKS = 64
"""Ranks of the largest cluster whose printed times simulated ones were compared with (docs/validation.md)."""
FAR_RANKS = 1024
"""Ranks from which on that is far away."""
ONE_CARD_GBPS, SLOW_S, LITTLE = 800, 1e-3, 0.2
"""Rate of the fastest card (ConnectX-8), a latency that only long ways have, and the least share of a line's rate that
networks in order reach."""


def cautions(profile: Profile, cluster: Cluster) -> list[str]:
    """Return the sentences; none where nothing is odd."""
    found = [_other_gpu(profile, cluster), *profile.origin.note.split(BEWARE)[1:]]
    if cluster.world_size > FAR_RANKS:
        found.append(
            f"{cluster.world_size:,} ranks are far beyond the {CHECKED_RANKS} of the largest cluster that simulated "
            "times were checked against; what networks of that size do is not in these times"
        )
    found += _odd_links(cluster)
    return [sentence.rstrip("; ") for sentence in found if sentence]


def _odd_links(cluster: Cluster) -> Iterator[str]:
    """Yield what a number of the network may be a slip of, where no table of exchanges stands in its place."""
    inter, busbw = cluster.inter, cluster.busbw_gbps
    if cluster.nodes == 1 or cluster.tables:
        return
    if inter.gbps > ONE_CARD_GBPS and busbw is None:
        yield (
            f"no network card has {inter.gbps:g} Gbit/s, the fastest {ONE_CARD_GBPS:g}; several are "
            "cluster.nics_per_node, and 1 GB/s is 8 Gbit/s"
        )
    if inter.latency_s > SLOW_S and not f"{inter.kind}{inter.like}".startswith("wan_"):
        yield f"a message takes {1e3 * inter.latency_s:g} ms by latency_s, and 0.01 to 0.03 in a data centre"
    if inter.like:
        yield f"cluster.inter.gbps has the efficiency and latency of {inter.like}; cluster.link sets all three"
    line = cluster.nics_per_node * inter.gbps
    if busbw is not None and not LITTLE * line < busbw < 2.2 * line:
        yield (
            f"cluster.busbw_gbps={busbw:g} is {busbw / line:.2g} times the {line:g} Gbit/s of cluster.link and "
            f"nics_per_node; nccl-tests prints GB/s, and {busbw:g} GB/s are {8 * busbw:g}: name your link and cards too"
        )


def _other_gpu(profile: Profile, cluster: Cluster) -> str:
    """Return what to know of a profile that was measured on another GPU than the cluster has."""
    if not profile.device.startswith("cuda") or cluster.device in ("cpu", "cuda"):
        return ""
    on = profile.origin.hardware or "a GPU that it does not name"
    sheet = sheet_named(profile.origin.hardware)
    if sheet is not None and sheet.partition("_")[0] == cluster.device.partition("_")[0]:
        return ""
    return (
        f"the profile was measured on {on} and the cluster has {cluster.device} devices "
        f"({device(cluster.device).title}): forward, backward and step are those of {on}"
    )
