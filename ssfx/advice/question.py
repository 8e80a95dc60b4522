"""From the words of `ssfx advise` to the Setting that they ask about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ssfx.advice.setting import Setting
from ssfx.config.clusters import cluster_at
from ssfx.config.compose import compose
from ssfx.config.overrides import read
from ssfx.config.schema import Settings
from ssfx.config.simulations import with_custom
from ssfx.config.sweep import single
from ssfx.config.targets import target_at
from ssfx.core.errors import ConfigError

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
    cluster = cluster_at(point, config["cluster"], settings.world_size, on)
    target = target_at(cluster.name, cluster.world_size, on, model, settings.batch_size, settings.optimizer)
    setting = Setting(target.cluster, target.profile)
    return setting if settings.density is None else replace(setting, density=settings.density)
