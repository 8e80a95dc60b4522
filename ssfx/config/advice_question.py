"""From the words of `ssfx advise` to the Setting that they ask about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ssfx.advice.setting import Setting
from ssfx.config.clusters import check_recorded, choice_at
from ssfx.config.compose import compose
from ssfx.config.overrides import read
from ssfx.config.schema import Settings
from ssfx.config.simulations import with_custom
from ssfx.config.sweep import single
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.target import target_at

ADVICE_KEYS = ("model", "workload", "cluster", "density", "batch_size", "optimizer", "world_size", "device")
"""What advice depends on."""


def resolve_setting(words: Iterable[str]) -> Setting:
    """Return the setting that `words` ask about; ConfigError for a sweep or a key that no advice depends on."""
    request = read(words)
    for key in request:
        if key in ("scheme", "compressor") or key.startswith(("scheme.", "compressor.")):
            raise ConfigError(
                f"advice compares all schemes, each with its own compressor, so {key} has no place; drop it, or "
                "compare some with ssfx simulate scheme=a,b"
            )
        if key not in ADVICE_KEYS and not key.startswith("cluster."):
            raise ConfigError(f"advice does not depend on {key}; it takes {', '.join(ADVICE_KEYS)}")
    point = with_custom(single(request, "advise"))
    config = compose(point)
    settings = Settings.of(config)
    model, on = config["model"]["name"], settings.device
    cluster = cluster_of(config["cluster"], settings.world_size, on)
    check_recorded(point, cluster)
    choice = choice_at(point, cluster)
    target = target_at(choice, cluster.world_size, on, model, settings.batch_size, settings.optimizer)
    setting = Setting(target.cluster, target.profile)
    return setting if settings.density is None else replace(setting, density=settings.density)
