"""The Case: one run, fully resolved. Its content hash is its identity; equal cases are one run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "bf16", "fp16"]

_CLUSTER = re.compile(r"(?P<name>[^(]+)(?:\((?P<options>[^)]*)\))?")


@dataclass(frozen=True)
class ClusterChoice:
    """Which cluster a case runs on: the name of its file, and the options that make it another cluster than the file.

    `options` is canonical: sorted, whole numbers as int, and nothing in it that the file says already. `str()` gives
    the text that is part of run ids and is shown to people: "64gpu(inter.gbps=10)".
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole = {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in self.options.items()}
        object.__setattr__(self, "options", dict(sorted(whole.items())))

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name

    @classmethod
    def parse(cls, text: str) -> ClusterChoice:
        """Return the choice whose `str()` is `text`; ValueError for a text that is none."""
        match = _CLUSTER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a cluster; write a name, or name(option=value)")
        pairs = [part.partition("=") for part in (match["options"] or "").split(",") if part]
        return cls(match["name"], {key: _number(value) for key, _, value in pairs})

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
    """Everything that determines a run's outcome; nothing else may influence it.

    `compressor`, `memory` are specs (None: the scheme is dense or the compressor keeps nothing). `scheme_options` holds
    what differs from the scheme's defaults, without compressor and density. `batch_size` is per rank. Timing statistics
    leave out the first `warmup_steps` of `steps`. With `control`, a pass without exchange precedes every timed step and
    is timed for itself: how fast the machine is just then. `cluster` may be given as its text. `calibration` is empty
    for real runs; a simulated one names the kind of its costs and the digest of all it is computed from, as
    "nominal:1a2b3c4d".
    """

    experiment: str
    model: str
    dataset: str
    scheme: str
    cluster: ClusterChoice
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", ClusterChoice.of(self.cluster))
        # 1 and 1.0 are equal but differ in JSON; equal cases must have equal ids.
        for name in ("density", "lr", "momentum", "weight_decay", "clip_norm"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, float(value))

    @cached_property
    def run_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON of all fields, of the last two only where set."""
        fields = {**asdict(self), "cluster": str(self.cluster)}
        for name in ("calibration", "control"):
            if not fields[name]:
                del fields[name]  # so that a run without them is identified by what it always was
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
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
