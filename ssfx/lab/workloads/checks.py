"""What a case may ask of a worker, checked before any process is started; no torch here."""

import os

from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.paths import DOWNLOAD_VARIABLE
from ssfx.core.user_code import is_own
from ssfx.lab.workloads.base import ANY, Dataset, Model, datasets, models

OPTIMIZERS = ("adam", "adamw", "muon", "sgd")


def check_case(case: Case) -> None:
    """Raise ConfigError, naming the nearest thing that works, when the training loop cannot run `case`.

    A simulated case needs no data. Numbers and words are those of Settings, which has checked them.
    """
    dataset = datasets.build(case.dataset)
    check_fit(models[case.model], dataset)
    if not case.calibration and dataset.missing():
        if os.environ.get(DOWNLOAD_VARIABLE):
            dataset.download()
        if why := dataset.missing():
            raise ConfigError(why + ("" if case.evaluate else "; to time it without, use dataset=synthetic"))
    if case.data_workers and not dataset.prepares:
        raise ConfigError(f"dataset={dataset.name} needs no preparation, so data.workers would have no effect; drop it")
    if case.evaluate and not dataset.held_out:
        raise ConfigError(
            f"dataset={dataset.name} has no held-out part, so evaluate=true would measure nothing; drop it"
        )
    model = models[case.model]
    if case.initial_weights and not (model.source.startswith("transformers ") or is_own(model.name)):
        raise ConfigError(
            f"model.path holds weights of Hugging Face's transformers, which model={case.model} does not take; drop it"
        )
    if case.optimizer == "muon" and case.sharding != "none":
        raise ConfigError(f"optimizer=muon steps whole matrices, which sharding={case.sharding} splits; use adamw")
    if case.precision == "fp16" and case.device == "cpu":
        raise ConfigError("precision=fp16 needs device=cuda, because loss scaling is for CUDA; on the CPU use bf16")
    if case.precision == "tf32" and case.device == "cpu":
        raise ConfigError("precision=tf32 is a way in which GPUs multiply and needs device=cuda; on the CPU use fp32")
    if case.optimizer != "sgd" and case.momentum >= 1:
        raise ConfigError(f"momentum is beta1 of {case.optimizer} and must be below 1, got {case.momentum}")


def check_fit(model: Model, dataset: Dataset) -> None:
    """Raise ConfigError when `dataset` does not hold what `model` reads."""
    if ANY in (model.inputs, dataset.inputs):
        return
    if model.inputs != dataset.inputs:
        fitting = [entry.name for entry in datasets if entry.cls.inputs == model.inputs]
        hint = f"use dataset={fitting[0]}, or dataset=synthetic to time it" if fitting else "use dataset=synthetic"
        raise ConfigError(
            f"model={model.name} reads {model.inputs}, dataset={dataset.name} holds {dataset.inputs}; {hint}"
        )
    if model.max_seq_len and dataset.seq_len > model.max_seq_len:
        raise ConfigError(
            f"model={model.name} takes at most {model.max_seq_len} tokens, "
            f"use dataset={dataset.name}(seq_len={model.max_seq_len})"
        )
