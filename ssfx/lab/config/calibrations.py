"""From the words of `ssfx profile network` and `ssfx profile compressors` to what is measured."""

from collections.abc import Iterable

from ssfx.config.compose import compose
from ssfx.config.groups import GROUPS
from ssfx.config.overrides import check
from ssfx.config.schema import KEYS
from ssfx.core.errors import ConfigError, unknown
from ssfx.lab.config.here import check_here
from ssfx.lab.engines.hosts import Network
from ssfx.perf_model.cluster_file import cluster_of, local_ranks

NETWORK_KEYS = ("cluster", "world_size")
COMPRESSOR_KEYS = ("ranks",)


def resolve_network(words: Iterable[str]) -> tuple[str, int]:
    """Return cluster and number of ranks; ConfigError for a cluster that is not here, or is not made of CPUs."""
    given = key_values(words, NETWORK_KEYS)
    name = str(check("cluster", [given.get("cluster", "local")])[0])
    if name != "local" and Network.of(name) is None:
        raise ConfigError(f"cluster={name} is not here, so it cannot be measured; use cluster=local or an emulated one")
    size = _count("world_size", given["world_size"]) if "world_size" in given else None
    # What is measured is the computing that exchanges on the CPU take, even on a machine with GPUs.
    cluster = cluster_of(compose({"cluster": name})["cluster"], size, "cpu")
    check_here(cluster)
    if cluster.world_size < 2:
        raise ConfigError("one rank exchanges nothing; use world_size=2")
    return cluster.name, cluster.world_size


def resolve_compressors(words: Iterable[str]) -> int:
    """Return the number of ranks that compress at once."""
    given = key_values(words, COMPRESSOR_KEYS)
    ranks = _count("ranks", given["ranks"]) if "ranks" in given else local_ranks("cpu")
    if ranks < 2:
        raise ConfigError("one rank exchanges nothing, so nothing is compressed; use ranks=2")
    return ranks


def key_values(words: Iterable[str], keys: tuple[str, ...]) -> dict[str, str]:
    """Return the words of a command that takes few keys, by key; ConfigError for other words, and for a key twice."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise ConfigError(f"{word!r} is not key=value; this takes {', '.join(keys)}")
        if key not in keys:
            if key in (*GROUPS, *KEYS):
                raise ConfigError(f"{key} has no effect on this measurement, which takes {', '.join(keys)}")
            raise ConfigError(f"write --on {value}") if key == "on" else unknown("key", key, keys)
        if key in found:
            raise ConfigError(f"{key} is given twice; keep one of them")
        found[key] = value
    return found


def _count(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{key} must be a whole number of at least 1, got {value!r}")
    return int(value)
