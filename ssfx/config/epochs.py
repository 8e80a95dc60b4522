"""How many steps the epochs of a workload are, which depends on how many ranks share them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from ssfx.config.schema import Settings
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster_file import cluster_of


def with_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the number of steps that its workload's epochs take, where it gives none.

    An epoch drops its last, incomplete global batch, as training does. ConfigError for a workload without epochs.
    """
    if config["steps"] is not None:
        return dict(config)
    workload = config["workload"]
    if "epochs" not in workload or config["dataset"]["name"] != workload["trained_on"]:
        raise ConfigError(
            f"preset={config['preset']['name']} trains as long as the authors did, which workload={workload['name']} "
            f"does not say for dataset={config['dataset']['name']}; set steps=..., or choose workload=bert_base_squad"
        )
    settings = Settings.of({**config, "steps": config["warmup_steps"] + 1})
    cluster = cluster_of(config["cluster"], settings.world_size, settings.device)
    global_batch = cluster.world_size * settings.batch_size * settings.accumulate
    per_epoch = max(1, workload["train_samples"] // global_batch)
    return {**config, "steps": ceil(workload["epochs"] * per_epoch)}
