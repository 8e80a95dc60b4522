"""ssfx in Lightning: a strategy that is Lightning's DDP strategy with another exchange.

Trainer(strategy=SsfxStrategy(scheme="ssfusion_oi", density=0.01), devices=4)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn

from ssfx.runtime.attach import attach_whole, of_run
from ssfx.runtime.integrations.state_files import load_state, save_state
from ssfx.runtime.sync import Sync


class SsfxStrategy(DDPStrategy):  # type: ignore[misc]
    """Starts, shards and checkpoints as Lightning's DDPStrategy does; ssfx exchanges the gradients.

    Keyword arguments are those of `ssfx.attach`; scheme=auto hears whether the trainer clips. Each rank's state is
    saved beside every checkpoint of the trainer and loaded with it. `sync` is the handle while fitting.
    """

    strategy_name = "ssfx"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._resume_from: Path | None = None
        self.sync: Sync | None = None

    def configure_ddp(self) -> None:
        """Leave the model as it is."""

    def setup(self, trainer: Any) -> None:
        """Attach to the model and its optimizers, and continue from the checkpoint that is being resumed."""
        super().setup(trainer)
        if trainer.state.fn == TrainerFn.FITTING:
            options = of_run(self._options, clipped=bool(trainer.gradient_clip_val))
            self.sync = attach_whole(self.model, self.optimizers, **options)
            if self._resume_from is not None:
                load_state(self.sync, self._resume_from)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulate locally in micro-steps; Lightning calls it for all but the last one."""
        assert self.sync is not None
        with self.sync.no_sync():
            yield

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write Lightning's checkpoint, and this rank's state next to it."""
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if self.sync is not None:
            save_state(self.sync, filepath)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return Lightning's checkpoint, and note where this rank's state is."""
        self._resume_from = Path(checkpoint_path)
        loaded: dict[str, Any] = super().load_checkpoint(checkpoint_path, *args, **kwargs)
        return loaded

    def teardown(self) -> None:
        """Detach."""
        if self.sync is not None:
            self.sync.detach()
            self.sync = None
        super().teardown()

    def _setup_model(self, model: torch.nn.Module) -> torch.nn.Module:
        return model
