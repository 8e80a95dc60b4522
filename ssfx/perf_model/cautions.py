"""What must be said with an answer: a profile of another GPU or with waiting in it, a cluster far out of range."""

from __future__ import annotations

from ssfx.core.origin import BEWARE
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.devices import device, sheet_named
from ssfx.planning.profile import Profile

CHECKED_RANKS = 64
"""Ranks of the largest cluster whose printed times simulated ones were compared with (docs/validation.md)."""
FAR_RANKS = 1024
"""Ranks from which on that is far away."""


def cautions(profile: Profile, cluster: Cluster) -> list[str]:
    """Return the sentences, none for most profiles and clusters."""
    found = [_other_gpu(profile, cluster), *profile.origin.note.split(BEWARE)[1:]]
    if cluster.world_size > FAR_RANKS:
        found.append(
            f"{cluster.world_size:,} ranks are far beyond the {CHECKED_RANKS} of the largest cluster that simulated "
            "times were checked against; what networks of that size do is not in these times"
        )
    return [sentence.rstrip("; ") for sentence in found if sentence]


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
