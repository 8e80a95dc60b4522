"""The typed top-level keys, those that conf/config.yaml and the workloads give defaults to, and what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ssfx.core.case import Kind, ReduceDtype, Schedule
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import as_number, numeric
from ssfx.core.plausible import plausible
from ssfx.planning.exempt import kinds_of

MOST = {
    "batch_size": 10**7,
    "world_size": 10**6,
    "threads": 1024,
    "steps": 10**9,
    "repeats": 10**4,
    "seed": 2**32 - 1,
    "accumulate": 10**6,
    "jobs": 1024,
    "shards": 10**6,
}
"""Upper bounds of keys, beyond which a value can only be a slip."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run's top-level values, checked; a field's comment in conf/ says what it means."""

    batch_size: int
    optimizer: Literal["sgd", "adam", "adamw", "muon"]
    lr: float
    momentum: float
    weight_decay: float
    density: float | None
    world_size: int | None
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "tf32", "bf16", "fp16"]
    threads: int
    steps: int
    warmup_steps: int
    repeats: int
    seed: int
    accumulate: int
    clip_norm: float | None
    evaluate: bool
    time_compute_only: bool
    checkpoint_every: int
    trace: bool
    schedule: Schedule
    milestones: tuple[float, ...]
    lr_warmup: float
    scale_lr_by_ranks: bool
    decay_only_matrices: bool
    evaluate_every: int
    target_metric: Literal["top1", "top5", "perplexity", "perplexity_per_word", "exact_match", "f1", "bleu"] | None
    target_value: float | None
    data_workers: int
    stall_timeout_s: float
    jobs: int
    wandb: Literal["off", "offline", "online"]
    wandb_project: str
    wandb_tags: tuple[str, ...]
    sharding: Kind
    shards: int | None
    reduce_dtype: ReduceDtype
    reshard_after_forward: bool
    shard_compressor: str | None
    weights: str | None
    exempt: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in ("batch_size", "world_size", "threads", "steps", "repeats", "accumulate", "jobs", "shards"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"{key} must be at least 1, got {value}")
        for key in (
            "momentum",
            "weight_decay",
            "warmup_steps",
            "seed",
            "checkpoint_every",
            "evaluate_every",
            "data_workers",
        ):
            if getattr(self, key) < 0:
                raise ConfigError(f"{key} must not be negative, got {getattr(self, key)}")
        for key, most in MOST.items():
            if (getattr(self, key) or 0) > most:
                raise ConfigError(f"{key} must be at most {most}, got {getattr(self, key):g}")
        for key in ("lr", "clip_norm", "stall_timeout_s"):
            value = getattr(self, key)
            if value is not None and not value > 0:
                raise ConfigError(f"{key} must be positive, got {value:g}")
        if self.density is not None and not 0 < self.density <= 1:
            percent = f"; {self.density:g} % is {self.density / 100:g}" if 1 < self.density <= 100 else ""
            raise ConfigError(f"density is the kept fraction and must be in (0, 1], got {self.density:g}{percent}")
        if self.density is not None:
            plausible("density", self.density)
        self._check_schedule()
        kinds_of(self.exempt)
        if self.evaluate_every and not self.evaluate:
            raise ConfigError(f"evaluate_every={self.evaluate_every} needs evaluate=true")
        if (self.target_metric is None) != (self.target_value is None):
            raise ConfigError("a target is target_metric and target_value together; set both, or neither")
        if self.target_metric is not None and not self.evaluate_every:
            raise ConfigError("a target is looked for where quality is measured: set evaluate_every too")
        if self.warmup_steps >= self.steps:
            raise ConfigError(
                f"warmup_steps={self.warmup_steps} leaves none of steps={self.steps} to measure; "
                f"use warmup_steps={max(0, self.steps // 3)}"
            )

    def _check_schedule(self) -> None:
        if bool(self.milestones) != (self.schedule == "step"):
            raise ConfigError(
                f"milestones are where schedule=step lowers the learning rate, got schedule={self.schedule} "
                f"milestones={list(self.milestones)}; use schedule=step milestones=[0.5,0.75], or neither"
            )
        if any(not 0 < at < 1 for at in self.milestones) or list(self.milestones) != sorted(self.milestones):
            raise ConfigError(f"milestones are ascending fractions of the run in (0, 1), got {list(self.milestones)}")
        if not 0 <= self.lr_warmup < 1:
            raise ConfigError(f"lr_warmup is a fraction of the run and must be in [0, 1), got {self.lr_warmup:g}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Return the settings among `values`, of files too; ConfigError for a wrong type or an impossible value."""
        return cls(**{key: typed(key, _as_spelt(key, values[key])) for key in TYPES})


TYPES: dict[str, Any] = get_type_hints(Settings)
KEYS = tuple(field.name for field in fields(Settings))

_OTHER_WORDS = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "float": "fp32",
    "single": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    **dict.fromkeys(("amp", "mixed", "16", "mixed_precision"), "bf16, or fp16"),
    **dict.fromkeys(("zero1", "zero2", "zero3", "zero", "deepspeed"), "fsdp"),
    "ddp": "none",
}
"""What people call some of the words of keys."""
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def typed(key: str, value: Any) -> Any:
    """Return `value` as the type of the top-level key `key`; ConfigError when it is of another."""
    hint = TYPES[key]
    if choices := word_choices(key):
        if value is None and type(None) in get_args(hint):
            return None
        if value not in choices:
            of_cluster = {str(value): f"cpu or cuda runs it: of a cluster write cluster.device={value}"}
            sheet = key == "device" and re.search(r"\d", str(value)) and "cuda" not in value
            raise unknown(key, str(value), choices, _OTHER_WORDS | (of_cluster if sheet else {}))
        return value
    if get_origin(hint) is tuple:
        return _texts(key, value) if str in get_args(hint) else _numbers(key, value)
    kinds = get_args(hint) or (hint,)
    if value is None and type(None) in kinds:
        return None
    kind = kinds[0]
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"{key} must be a finite number, got {value:g}")
    if isinstance(value, bool) == (kind is bool):
        if isinstance(value, kind):
            return value
        if kind is float and isinstance(value, int):
            return float(value)
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
    optional = " or null" if type(None) in kinds else ""
    how = as_number(value, key) if kind in (int, float) else ""
    how = "; drop it for the usual value" if value in ("auto", "default") else how
    raise ConfigError(f"{key} must be {_WORDS[kind]}{optional}, got {value!r}{how}")


def _as_spelt(key: str, value: Any) -> Any:
    """Return the numbers that texts of a file spell, where the key holds numbers."""
    hint = TYPES[key]
    if not {int, float} & {hint, *get_args(hint)}:
        return value
    return [numeric(one) for one in value] if isinstance(value, list | tuple) else numeric(value)


def word_choices(key: str) -> tuple[str, ...]:
    """Return the words that a key may hold; empty for numbers and switches."""
    hint = TYPES[key]
    kinds = (hint, *get_args(hint)) if get_origin(hint) is not Literal else (hint,)
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or any(not isinstance(one, str) for one in value):
        how = f"; write {key}=[{value}]" if isinstance(value, str) else ""
        raise ConfigError(f"{key} must be a list of words, as [first,second], got {value!r}{how}")
    return tuple(value)


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or any(
        isinstance(one, bool) or not isinstance(one, int | float) for one in value
    ):
        raise ConfigError(f"{key} must be a list of numbers, as [0.5,0.75], got {value!r}")
    return tuple(float(one) for one in value)
