"""ssfx in Hugging Face's Trainer and in loops of accelerate.

trainer.add_callback(SsfxCallback(trainer, scheme="ssfusion_oi", density=0.01))

sync, model, optimizer, loader = prepare(accelerator, model, optimizer, loader, scheme="ssfusion_oi")
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from ssfx.core.errors import ConfigError
from ssfx.runtime.attach import attach, of_run
from ssfx.runtime.integrations.state_files import load_state, save_state
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.sync import Sync
from ssfx.sharded.sync import ShardedSync


class SsfxCallback(TrainerCallback):  # type: ignore[misc]
    """Exchanges a Trainer's gradients by ssfx instead of torch DDP, from the start of training to its end.

    `options` are those of `ssfx.attach`. The trainer keeps everything else: sharded data, mixed precision, clipping,
    accumulation, evaluation, and sharding by its fsdp option in version 2; scheme=auto hears
    whether it clips. Each rank's state is saved with every
    checkpoint and loaded when training resumes from one. `resume_from`: the checkpoint, where it is not in the
    trainer's output folder. `sync` is the handle while training runs.
    """

    def __init__(self, trainer: Any, *, resume_from: str | Path | None = None, **options: Any) -> None:
        self._trainer = trainer
        self._resume_from = resume_from
        self._options = options
        self.sync: Sync | ShardedSync | OuterSync | None = None
        _without_ddp(trainer.accelerator)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach, and load the state of the checkpoint that the trainer resumed from."""
        if isinstance(self._trainer.model_wrapped, DistributedDataParallel):
            raise ConfigError(
                "the Trainer made a new accelerator, which wrapped the model in DistributedDataParallel; add the "
                "SsfxCallback after the call that does that (auto_find_batch_size is one)"
            )
        options = of_run(self._options, clipped=bool(args.max_grad_norm))
        self.sync = attach(kwargs["model"], kwargs["optimizer"], **options)
        if state.global_step:
            load_state(self.sync, self._resume_from or Path(args.output_dir, f"checkpoint-{state.global_step}"))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write this rank's state into the checkpoint that was just written."""
        if self.sync is not None:
            save_state(self.sync, Path(args.output_dir, f"checkpoint-{state.global_step}"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Detach."""
        if isinstance(self.sync, OuterSync):
            self.sync.synchronize()  # the round that is not full
        if self.sync is not None:
            self.sync.detach()
            self.sync = None


def prepare(
    accelerator: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *others: Any, **options: Any
) -> tuple[Any, ...]:
    """Return (sync, model, optimizer, *others), prepared by accelerate without DDP and with ssfx attached.

    A FullyShardedDataParallelPlugin of version 2 shards the model as without ssfx.
    `options` are those of `ssfx.attach`. `accelerator.accumulate(model)`, `backward` and `clip_grad_norm_` work on what
    is returned; save `sync.state_dict()` on every rank with the accelerator's own checkpoint.
    """
    _without_ddp(accelerator)
    prepared = accelerator.prepare(model, optimizer, *others)
    model, optimizer = prepared[:2]
    return attach(model, optimizer, **options), *prepared


def _without_ddp(accelerator: Any) -> None:
    """Let `accelerator` prepare models as for evaluation: moved and autocast, not wrapped, unless it shards them."""
    if getattr(accelerator, "is_fsdp2", False):
        return
    accelerator.prepare_model = partial(accelerator.prepare_model, evaluation_mode=True)
