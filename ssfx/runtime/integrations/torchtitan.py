"""ssfx in torchtitan: a configuration registry of your own, whose trainers exchange by ssfx.

    # my_runs/config_registry.py; then: python -m torchtitan.train --module my_runs --config llama3_8b
    from torchtitan.models.llama3 import config_registry
    from ssfx.runtime.integrations.torchtitan import with_ssfx

    def llama3_8b():
        config = config_registry.llama3_8b()
        config.training.disable_cuda_graphs = True
        config.parallelism.spmd_backend = "partial_dtensor"
        config.loss = config.loss.loss_fn
        return with_ssfx(config, scheme="fused_all", compressor="qsgd(bits=8,norm=max)")

Written for torchtitan 0.3, whose `Trainer.Config.build` makes a `Trainer` with `model_parts`, `optimizers` and
`checkpointer.states`. The three lines before the last are explained where a trainer without them is refused.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import tyro
from torchtitan.trainer import Trainer

from ssfx.core.errors import ConfigError
from ssfx.runtime.attach import attach
from ssfx.sharded.sync import ShardedSync


class SsfxTrainer(Trainer):  # type: ignore[misc]
    """A torchtitan trainer whose gradients, and weights if asked, travel by ssfx; `sync` is the handle.

    Residuals are in its checkpoints under "ssfx", where there are any.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):  # type: ignore[misc]
        """torchtitan's own, with the arguments of `ssfx.attach`."""

        ssfx: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)

    def __init__(self, config: Any) -> None:
        _check(config)
        super().__init__(config)
        self.sync = attach(self.model_parts[0], list(self.optimizers), **config.ssfx)
        if config.checkpoint.enable and isinstance(self.sync, ShardedSync) and "kept_bytes" in self.sync.stats():
            self.checkpointer.states["ssfx"] = self.sync.for_checkpoint()

    def close(self) -> None:
        """Torch's own exchange is back."""
        self.sync.detach()
        super().close()


def with_ssfx(config: Any, **options: Any) -> Any:
    """Return torchtitan's configuration of a trainer that exchanges by ssfx; `options` are those of `ssfx.attach`."""
    kept = {one.name: getattr(config, one.name) for one in fields(config)}
    return SsfxTrainer.Config(**kept, ssfx=options)


def _check(config: Any) -> None:
    """Raise ConfigError for what torchtitan does that an exchange in Python cannot follow."""
    if not config.training.disable_cuda_graphs:
        raise ConfigError(
            "CUDA graphs replay kernels without the Python that compresses; set training.disable_cuda_graphs"
        )
    if config.parallelism.spmd_backend != "partial_dtensor":
        raise ConfigError(
            f"parallelism.spmd_backend={config.parallelism.spmd_backend} splits parameters before fully_shard, which "
            "ssfx does not exchange; use partial_dtensor"
        )
    if hasattr(config.loss, "loss_fn"):
        raise ConfigError(
            "a loss in chunks reduces the last group of fully_shard in parts; use config.loss = config.loss.loss_fn"
        )
    if config.parallelism.pipeline_parallel_degree > 1:
        raise ConfigError(
            "pipeline stages are several models, and ssfx exchanges one; set parallelism.pipeline_parallel_degree=1"
        )
