"""From the words of `ssfx profile` to what is measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from ssfx.config.compose import compose
from ssfx.config.groups import GROUPS
from ssfx.config.overrides import read
from ssfx.config.schema import KEYS, Settings
from ssfx.config.sweep import single
from ssfx.core.errors import ConfigError, unknown
from ssfx.lab.config.data_keys import with_own_data, without_data_keys
from ssfx.lab.config.epochs import with_usual_workload
from ssfx.lab.workloads import dataset_spec, datasets, models
from ssfx.perf_model.cluster_file import local_device

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
            ranks = _ranks(value)
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


def _ranks(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"ranks must be a whole number of at least 1, got {value!r}")
    return int(value)
