"""What each rank of a torchrun launch does in the tests of trainers: `scripts.py KIND FOLDER` prints one JSON line.

Each trains six steps and checkpoints after three, then starts again from there, and says whether the second half came
out the same, whether replicas are equal, what was exchanged, and whether torch DDP was about.
"""

import json
import os
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIONS: dict[str, Any] = {"scheme": "per_tensor", "compressor": "topk", "density": 0.1}
SHARDED: dict[str, Any] = {"scheme": "per_tensor", "compressor": "qsgd(bits=4,bucket=32)", "memory": "residual"}
STEPS, HALF, ROWS = 6, 3, 4


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))


class Numbers(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random vectors that depend on their index alone."""

    def __len__(self) -> int:
        return 48  # an epoch is three steps of two ranks: Lightning resumes at epochs only

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(32, generator=torch.Generator().manual_seed(index))}


class Model(nn.Module):
    """Returns its loss, as Trainer and our loops want."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.net(x).square().mean()}


def report(sync: Any, model: nn.Module, wrapped: object) -> dict[str, Any]:
    whole = [p.detach() for p in model.parameters()]
    flat = torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).reshape(-1) for p in whole])
    first = flat.clone()
    dist.broadcast(first, 0)
    return {
        "steps": sync.step,
        "bytes_of_a_step": int(sync.stats()["sent_bytes"]),
        "dense_bytes": 4 * flat.numel(),
        "residual": sync.stats()["residual_norm"],
        "replicas_equal": bool(torch.equal(first, flat)),
        "ddp": isinstance(wrapped, DistributedDataParallel),
        "parameters": flat.double().sum().item(),
        "norm": flat.double().norm().item(),
    }


def trainer(folder: Path) -> list[dict[str, Any]]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from ssfx.runtime.integrations.hf import SsfxCallback

    # Transformers 5.0 wants an optimizer's state on cpu:0, where several ranks resume, and torch.load knows only cpu.
    torch.serialization.register_package(99, lambda _: None, lambda obj, at: obj if at == "cpu:0" else None)
    found = []

    def once(resume: str | None) -> None:
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=ROWS,
            save_steps=HALF,
            use_cpu=True,
            gradient_accumulation_steps=2,
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            seed=3,
            learning_rate=1e-2,
            max_grad_norm=1.0,
            optim="adamw_torch",
            remove_unused_columns=False,
        )
        model = Model()
        run = Trainer(model=model, args=arguments, train_dataset=Numbers())
        callback = SsfxCallback(run, **OPTIONS)
        run.add_callback(callback)

        class Report(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == STEPS:
                    found.append(report(callback.sync, model, run.model_wrapped))

        run.add_callback(Report())
        run.train(resume_from_checkpoint=resume)

    once(None)
    once(str(folder / f"checkpoint-{HALF}"))
    return found


def accelerate(folder: Path, sharded: bool = False) -> list[dict[str, Any]]:
    from accelerate import Accelerator

    from ssfx.runtime.integrations.hf import prepare
    from ssfx.runtime.integrations.state_files import load_state, save_state

    found = []
    kept: Any = None
    for resume in (False, True):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        if sharded:
            shard(accelerator)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=ROWS)
        sync, model, optimizer, loader = prepare(
            accelerator, model, optimizer, loader, **(SHARDED if sharded else OPTIONS)
        )
        batches = [batch for _ in range(4) for batch in loader][: 2 * STEPS]
        if resume:
            if sharded:
                model.load_state_dict(kept[0])
                optimizer.load_state_dict(kept[1])
            else:
                accelerator.load_state(str(folder))
            load_state(sync, folder)
            batches = batches[2 * HALF :]
        for number, batch in enumerate(batches, 1):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if not resume and number == 2 * HALF:
                if sharded:  # on the CPU accelerate would save shards as if they were whole
                    kept = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
                else:
                    accelerator.save_state(str(folder))
                save_state(sync, folder)
        found.append(report(sync, model, model))
        sync.detach()
    return found


def shard(accelerator: Any) -> None:
    """Do what accelerate does of itself on a GPU: shard by its plug-in in version 2."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Linear"],
        cpu_ram_efficient_loading=False,
    )


def lightning(folder: Path) -> list[dict[str, Any]]:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    from ssfx.runtime.integrations.lightning import SsfxStrategy

    found = []

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
            return self.net(batch["x"]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    class Report(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if trainer.global_step == STEPS and not found_now:
                found_now.append(report(trainer.strategy.sync, module, trainer.strategy.model))

    for resume in (None, str(folder / f"step={HALF}.ckpt")):
        found_now: list[dict[str, Any]] = []
        saver = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=HALF, save_top_k=-1)
        run = pl.Trainer(
            strategy=SsfxStrategy(**OPTIONS),
            accelerator="cpu",
            devices=2,
            max_steps=STEPS,
            accumulate_grad_batches=2,
            gradient_clip_val=1.0,
            callbacks=[Report(), *([] if resume else [saver])],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=not resume,
        )
        torch.manual_seed(3)
        run.fit(Module(), torch.utils.data.DataLoader(Numbers(), batch_size=ROWS), ckpt_path=resume, weights_only=False)
        found += found_now
    return found


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    kind, where = sys.argv[1:]
    work = {
        "trainer": trainer,
        "accelerate": accelerate,
        "lightning": lightning,
        "sharded": partial(accelerate, sharded=True),
    }
    results = work[kind](Path(where))
    Path(where, f"report-{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
