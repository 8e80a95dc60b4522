"""The Case: one run, fully resolved. Its content hash is its identity; equal cases are one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from ssfx.core.errors import ConfigError
from ssfx.core.files import loads
from ssfx.core.numbers import whole
from ssfx.core.spec import Spec

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Schedule = Literal["constant", "step", "linear", "cosine"]
Kind = Literal["none", "fsdp", "hsdp"]
ReduceDtype = Literal["fp32", "bf16"]

LATER_FIELDS: dict[str, Any] = {
    "calibration": "",
    "counts": "",
    "time_compute_only": False,
    "schedule": "constant",
    "milestones": (),
    "lr_warmup": 0.0,
    "scale_lr_by_ranks": False,
    "decay_only_matrices": False,
    "evaluate_every": 0,
    "target_metric": None,
    "target_value": None,
    "data_workers": 0,
    "initial_weights": "",
    "sharding": "none",
    "shards": 0,
    "reduce_dtype": "fp32",
    "reshard_after_forward": True,
    "shard_compressor": None,
    "weights": None,
    "exempt": (),
    "virtual": "",
    "ranks": 0,
}
"""Fields that came after the first committed rows, with the value that says nothing: then they are left out of a case's
identity, so that a run without them is identified by what it always was."""


@dataclass(frozen=True)
class ClusterChoice:
    """Which cluster a case runs on: the name of its file, and the options that make it another cluster than the file.

    `options` is canonical: sorted, whole numbers as int, and nothing in it that the file says already. `str()` gives
    the text that is part of run ids and is shown to people: "64gpu(inter.gbps=10)".
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {key: whole(value) for key, value in sorted(self.options.items())})

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return str(Spec(self.name, self.options))

    @property
    def changes(self) -> dict[str, str]:
        """The options that make other machines or links of it, as text: all but the calibration."""
        return {key: str(value) for key, value in self.options.items() if key != "calibration"}

    @classmethod
    def parse(cls, text: str) -> ClusterChoice:
        """Return the choice whose `str()` is `text`; ValueError for a text that is none."""
        try:
            spec = Spec.parse(text, "cluster")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return cls(spec.name, {key: _number(value) for key, value in spec.options.items()})

    @classmethod
    def of(cls, value: ClusterChoice | Mapping[str, Any] | str) -> ClusterChoice:
        """Return the choice itself, or the one of a JSON object or of a text, as the first committed rows have it."""
        if isinstance(value, str):
            return cls.parse(value)
        return value if isinstance(value, ClusterChoice) else cls(**value)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclass(frozen=True)
class Case:
    """Everything that determines a run's outcome; nothing else may influence it."""

    experiment: str
    """Which experiment the run belongs to."""
    model: str
    """Name of the model."""
    dataset: str
    """Spec of the data set."""
    scheme: str
    """Name of the scheme."""
    cluster: ClusterChoice
    """Where it runs; may be given as its text."""
    world_size: int
    """Number of ranks."""
    batch_size: int
    """Samples per rank."""
    compressor: str | None = None
    """Spec of the compressor; None: the scheme is dense."""
    density: float | None = None
    """Share of elements kept, in (0, 1]; None where there is no choice."""
    memory: str | None = None
    """Spec of the memory; None: the compressor keeps nothing."""
    scheme_options: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the scheme's defaults, without compressor and density."""
    device: Device = "cpu"
    """What ranks compute on."""
    precision: Precision = "fp32"
    """Numbers of forward and backward."""
    optimizer: str = "sgd"
    """Name of the optimizer."""
    lr: float = 0.05
    """Learning rate, that of one rank where it is scaled."""
    momentum: float = 0.9
    """Of SGD."""
    weight_decay: float = 0.0
    """Of the optimizer."""
    clip_norm: float | None = None
    """Largest global norm of the gradient, applied after the exchange; None: not clipped."""
    accumulate: int = 1
    """Micro-steps per optimizer step."""
    steps: int = 60
    """Optimizer steps."""
    warmup_steps: int = 20
    """How many of them, the first ones, are left out of timing statistics."""
    evaluate: bool = False
    """Whether quality is measured, at the end at least."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0: none."""
    trace: bool = False
    """Whether every rank writes a Chrome trace."""
    threads: int = 1
    """Threads that each rank computes with."""
    seed: int = 0
    """Of weights, data and selections."""
    repeat: int = 0
    """Number of this repetition of the same run."""
    calibration: str = ""
    """Empty for real runs; of a simulated one the kind of its costs and the digest of all it is computed from, as
    "nominal:1a2b3c4d"."""
    counts: str = ""
    """Version of the counts of fused kernels that a simulated one's times rest on; empty: it uses none of them."""
    time_compute_only: bool = False
    """Whether a pass without exchange precedes every timed step and is timed for itself: how fast the machine is."""
    schedule: Schedule = "constant"
    """How the learning rate goes on after its warm-up; see ssfx.lab.workloads.schedule."""
    milestones: tuple[float, ...] = ()
    """Fractions of the run after which schedule=step takes a tenth of the learning rate."""
    lr_warmup: float = 0.0
    """Fraction of the run in which the learning rate rises."""
    scale_lr_by_ranks: bool = False
    """Whether the learning rate after the warm-up is `lr` times `world_size`."""
    decay_only_matrices: bool = False
    """Whether biases and norms are left without weight decay."""
    evaluate_every: int = 0
    """Steps between measurements of quality; 0: at the end only."""
    target_metric: str | None = None
    """Metric of quality in which the run has a target; None: it has none."""
    target_value: float | None = None
    """What counts as reached: a quality at least as good as this."""
    data_workers: int = 0
    """Processes of each rank that read and prepare its samples; 0: the rank itself does."""
    initial_weights: str = ""
    """Weights that training starts from, as the name of their folder and a digest of it; empty: random ones."""
    sharding: Kind = "none"
    """How the model is shared among ranks: not, over all of them (fsdp), or with replicas (hsdp)."""
    shards: int = 0
    """Ranks that share a replica of the model; 0 without sharding."""
    reduce_dtype: ReduceDtype = "fp32"
    """What gradients of a sharded model are summed in."""
    reshard_after_forward: bool = True
    """Whether the blocks of a sharded model are gathered again for backward."""
    shard_compressor: str | None = None
    """Spec of the compressor of the sum over shards, of sharding=hsdp; None: torch's own sum."""
    weights: str | None = None
    """Spec of the compressor by which weights of a sharded model are gathered; None: torch's own gather."""
    exempt: tuple[str, ...] = ()
    """Kinds of tensors that travel as they are; see ssfx.planning.exempt."""
    virtual: Literal["", "cpu", "cuda"] = ""
    """Where virtual ranks take turns in one process, whose times are simulated; empty: a process for each rank."""
    ranks: int = 0
    """Virtual ranks that train in place of `world_size`; 0: as many."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", ClusterChoice.of(self.cluster))
        object.__setattr__(self, "milestones", tuple(float(one) for one in self.milestones))
        object.__setattr__(self, "exempt", tuple(self.exempt))
        # 1 and 1.0 are equal but differ in JSON; equal cases must have equal ids.
        for name in ("density", "lr", "momentum", "weight_decay", "clip_norm", "lr_warmup", "target_value"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, float(value))

    @cached_property
    def run_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON of all fields, of LATER_FIELDS only where set."""
        values = {name: getattr(self, name) for name in _NAMES}
        values["cluster"] = str(self.cluster)
        for name, default in LATER_FIELDS.items():
            if values[name] == default:
                del values[name]
        if "time_compute_only" in values:
            values["control"] = values.pop("time_compute_only")  # its first name, which ids keep
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Short human text: model/scheme(options)/compressor@density xP, without what the case does not have."""
        density = f"@{self.density:g}" if self.density is not None else ""
        compressor = f"/{self.compressor}{density}" if self.compressor is not None else ""
        sharded = "" if self.sharding == "none" else f" {self.sharding} of {self.shards}"
        virtual = f", {self.trained_ranks} virtual" if self.virtual else ""
        options = ",".join(f"{name}={value}" for name, value in sorted(self.scheme_options.items()))
        scheme = f"{self.scheme}({options})" if options else self.scheme
        return f"{self.model}/{scheme}{compressor} x{self.world_size}{sharded}{virtual}"

    @property
    def trained_ranks(self) -> int:
        """The number of ranks that compute gradients."""
        return self.ranks or self.world_size

    @property
    def processes(self) -> int:
        """The number of processes that train."""
        return 1 if self.virtual else self.world_size

    @property
    def trains_on(self) -> Device:
        """What these processes compute on: "cpu" or "cuda"."""
        return self.virtual or self.device

    @property
    def costs(self) -> str:
        """The kind of costs that a simulated row rests on: nominal, published, ...; "" of a real run."""
        return self.calibration.partition(":")[0]

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
        return cls.of(loads(text))

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Case:
        """Return the case of a JSON object; TypeError names an unknown field."""
        return cls(**raw)


_NAMES = tuple(one.name for one in fields(Case))
