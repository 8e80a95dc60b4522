"""A stand-in for torchtitan 0.3, with what `ssfx.runtime.integrations.torchtitan` uses of it and nothing else."""

import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

from sharded.models import adam, build, loss_of, mesh_of


class Trainer:
    """Builds, trains and closes as torchtitan's: a sharded model whose sums torch does not divide."""

    @dataclass(kw_only=True, slots=True)
    class Config:
        training: Any = field(default_factory=lambda: SimpleNamespace(disable_cuda_graphs=True))
        parallelism: Any = field(
            default_factory=lambda: SimpleNamespace(spmd_backend="partial_dtensor", pipeline_parallel_degree=1)
        )
        checkpoint: Any = field(default_factory=lambda: SimpleNamespace(enable=True))
        loss: Any = None
        rank: int = 0
        shape: tuple[int, int] = (0, 2)

        def build(self) -> Any:
            return _owner(type(self))(replace(self))

    def __init__(self, config: Any) -> None:
        self.config = config
        model: Any = build(mesh_of(*config.shape))
        for part in (*model.blocks, model):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # torchtitan does so for symmetric memory alone; gloo needs it
        self.model_parts, self.optimizers = [model], [adam(model)]
        self.checkpointer = SimpleNamespace(states={"model": model})
        self.closed = False

    def train_step(self, step: int) -> None:
        for one in self.optimizers:
            one.zero_grad()
        loss_of(self.model_parts[0], self.config.rank, step).backward()
        for one in self.optimizers:
            one.step()

    def close(self) -> None:
        self.closed = True


def _owner(kind: type) -> Any:
    from ssfx.runtime.integrations.torchtitan import SsfxTrainer

    return SsfxTrainer if kind is SsfxTrainer.Config else Trainer


def install() -> None:
    """Make the stand-in importable under torchtitan's names."""
    titan, trainer, tyro = (ModuleType(name) for name in ("torchtitan", "torchtitan.trainer", "tyro"))
    trainer.Trainer = Trainer  # type: ignore[attr-defined]
    tyro.conf = SimpleNamespace(Suppress=object())  # type: ignore[attr-defined]
    sys.modules |= {"torchtitan": titan, "torchtitan.trainer": trainer, "tyro": tyro}


def refusal(group: Any, rank: int, world: int, part: str, name: str, value: Any) -> str:
    """Return the text with which the recipe refuses a configuration."""
    install()
    from ssfx.core.errors import ConfigError
    from ssfx.runtime.integrations.torchtitan import with_ssfx

    config = with_ssfx(Trainer.Config(rank=rank), scheme="ddp")
    if part:
        setattr(getattr(config, part), name, value)
    else:
        setattr(config, name, value)
    try:
        config.build()
    except ConfigError as error:
        return str(error)
    return ""
