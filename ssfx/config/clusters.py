"""What a point of a grid says of a cluster, and whether times of it were recorded."""

from ssfx.config.compose import Point
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.spec import name_of
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import choice_of


def choice_at(point: Point, cluster: Cluster) -> ClusterChoice:
    """Return what a case says of the cluster of a point."""
    options = {key.partition(".")[2]: value for key, value in point.items() if key.startswith("cluster.")}
    return choice_of(cluster.name, options)


def check_recorded(point: Point, cluster: Cluster) -> None:
    """Raise ConfigError where recorded times are asked for by name and there are none of this cluster.

    Where its file alone says so, a cluster without any has nominal ones, and rows and outputs call them that.
    """
    if point.get("cluster.calibration") != "recorded" or cluster.device != "cpu":
        return
    from ssfx.perf_model.recorded_times import recorded_system  # late: few commands ask

    name = name_of(cluster.name)
    if recorded_system(name, cluster.world_size) is None:
        raise ConfigError(
            f"nothing is recorded of cluster={name} with {cluster.world_size} ranks: measure it with ssfx profile "
            f"network cluster={name} world_size={cluster.world_size}, or use cluster.calibration=nominal"
        )
