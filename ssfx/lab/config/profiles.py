"""From the words of `ssfx profile`, of a model, a network or compressors, to what is measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from ssfx.config.compose import compose
from ssfx.config.groups import GROUPS
from ssfx.config.overrides import check, read
from ssfx.config.schema import KEYS, Settings
from ssfx.config.sweep import single
from ssfx.core.errors import ConfigError, unknown
from ssfx.lab.config.data_keys import with_own_data, without_data_keys
from ssfx.lab.config.epochs import with_usual_workload
from ssfx.lab.config.here import check_here
from ssfx.lab.engines.hosts import Network
from ssfx.lab.workloads import dataset_spec, datasets, models
from ssfx.perf_model.cluster_file import cluster_of, local_device, local_ranks

PROFILE_KEYS = ("model", "workload", "dataset", "batch_size", "optimizer", "device", "ranks")
"""What a measured profile depends on."""


@dataclass(frozen=True)
class Measurement:
    """What `ssfx profile` was asked to measure; `ranks` processes share the machine."""

    model: str
    dataset: str
    batch_size: int
    optimizer: str
    device: str
    ranks: int


def resolve_profile(words: Iterable[str]) -> Measurement:
    """Return the measurement that `words` ask for; ConfigError for a sweep or a key that no profile depends on.

    A model without a workload or data set is measured as in the workload that trains it.
    """
    others, ranks = [], 0
    for word in without_data_keys(words):
        key, _, value = word.partition("=")
        if key == "ranks":
            if ranks:
                raise ConfigError("ranks is given twice; one command measures one number of ranks")
            ranks = _count("ranks", value)
        elif "=" in word and key.partition(".")[0] not in (*GROUPS, *KEYS):
            raise unknown("key", key, PROFILE_KEYS)
        else:
            others.append(word)
    request = with_own_data(read(others))
    for key in request:
        if key not in PROFILE_KEYS and not key.startswith("dataset."):
            raise ConfigError(f"a profile does not depend on {key}; it takes {', '.join(PROFILE_KEYS)}")
    point = with_usual_workload(single(request, "profile"))
    config = compose(point)
    settings = Settings.of(config)
    model = models[config["model"]["name"]].name
    dataset = dataset_spec(model, config["dataset"])
    if why := datasets.build(dataset).missing():
        raise ConfigError(why)
    device = local_device(settings.device)
    return Measurement(model, dataset, settings.batch_size, settings.optimizer, device, ranks or 1)


def resolve_network(words: Iterable[str]) -> tuple[str, int]:
    """Return cluster and number of ranks; ConfigError for a cluster that is not here, or is not made of CPUs."""
    given = key_values(words, ("cluster", "world_size"))
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
    given = key_values(words, ("ranks",))
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
