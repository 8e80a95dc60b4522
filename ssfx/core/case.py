"""The Case: one run, fully resolved. Its content hash is its identity; equal cases are one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Schedule = Literal["constant", "step", "linear", "cosine"]

LATER_FIELDS: dict[str, Any] = {
    "calibration": "",
    "control": False,
    "schedule": "constant",
    "milestones": (),
    "lr_warmup": 0.0,
    "scale_lr_by_ranks": False,
    "decay_only_matrices": False,
    "evaluate_every": 0,
    "target_metric": None,
    "target_value": None,
    "data_workers": 0,
}
"""Fields that came after the first committed rows, with the value that says nothing: then they are left out of a case's
identity, so that a run without them is identified by what it always was."""


@dataclass(frozen=True)
class Case:
    """Everything that determines a run's outcome; nothing else may influence it.

    `compressor`, `memory` are specs (None: the scheme is dense or the compressor keeps nothing). `scheme_options` holds
    what differs from the scheme's defaults, without compressor and density. `batch_size` is per rank. Timing statistics
    leave out the first `warmup_steps` of `steps`. With `control`, a pass without exchange precedes every timed step and
    is timed for itself: how fast the machine is just then. The learning rate follows `schedule`, in fractions of the
    run (`milestones`, `lr_warmup`), and is multiplied by `world_size` with `scale_lr_by_ranks`; see
    ssfx.workloads.schedule. `decay_only_matrices` leaves biases and norms without weight decay. With `evaluate` quality
    is measured at the end and, where that is not 0, every `evaluate_every` steps; a run has reached its target when
    `target_metric` is at least as good as `target_value`. `data_workers` processes of each rank
    load its batches. `cluster` says what differs from its file, as
    "64gpu(inter.gbps=10)". `calibration` is empty for real runs; a simulated one names the kind of its costs and the
    digest of all it is computed from, as "nominal:1a2b3c4d".
    """

    experiment: str
    model: str
    dataset: str
    scheme: str
    cluster: str
    world_size: int
    batch_size: int
    compressor: str | None = None
    density: float | None = None
    memory: str | None = None
    scheme_options: Mapping[str, Any] = field(default_factory=dict)
    device: Device = "cpu"
    precision: Precision = "fp32"
    optimizer: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    accumulate: int = 1
    steps: int = 60
    warmup_steps: int = 20
    evaluate: bool = False
    checkpoint_every: int = 0
    trace: bool = False
    threads: int = 1
    seed: int = 0
    repeat: int = 0
    calibration: str = ""
    control: bool = False
    schedule: Schedule = "constant"
    milestones: tuple[float, ...] = ()
    lr_warmup: float = 0.0
    scale_lr_by_ranks: bool = False
    decay_only_matrices: bool = False
    evaluate_every: int = 0
    target_metric: str | None = None
    target_value: float | None = None
    data_workers: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(float(one) for one in self.milestones))
        # 1 and 1.0 are equal but differ in JSON; equal cases must have equal ids.
        for name in ("density", "lr", "momentum", "weight_decay", "clip_norm", "lr_warmup", "target_value"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, float(value))

    @cached_property
    def run_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON of all fields, of LATER_FIELDS only where set."""
        values = asdict(self)
        for name, default in LATER_FIELDS.items():
            if values[name] == default:
                del values[name]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Short human text: model/scheme/compressor@density xP, without what the case does not have."""
        density = f"@{self.density:g}" if self.density is not None else ""
        compressor = f"/{self.compressor}{density}" if self.compressor is not None else ""
        return f"{self.model}/{self.scheme}{compressor} x{self.world_size}"

    @property
    def plan_options(self) -> dict[str, Any]:
        """The options that `ssfx.schemes.make_plan.make_plan` takes."""
        given = {"compressor": self.compressor, "density": self.density}
        return {**self.scheme_options, **{key: value for key, value in given.items() if value is not None}}

    def to_json(self) -> str:
        """Return the case as indented JSON, the text of a run directory's case.json."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Return the case that `to_json` wrote; TypeError names an unknown field."""
        return cls(**json.loads(text))
