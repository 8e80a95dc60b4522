"""The Profile: what a model's gradients look like in time, as a planner sees them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from ssfx.errors import ConfigError
from ssfx.origin import Origin
from ssfx.plan import TensorSpec


@dataclass(frozen=True)
class Profile:
    """Tensors in backward order with the backward time attributed to each, for one model and batch on one device.

    `ready_gap_s[i]` is the time between the gradients of tensor i-1 and i becoming ready (for i = 0: since backward
    began), so their sum is the backward time. `step_s` is the optimizer's time, `other_s` what an iteration takes
    beyond forward, backward and step. `ranks` is how many processes computed at once on the machine it was measured on;
    the times are then those of the slowest of them in each pass, `skew` times as long as a typical one's. `optimizer`
    is whose step was timed, "" in files from before it was noted. `yardstick_s`: how fast the machine computed then
    (`ssfx.yardstick`), 0 where that is not known. Raises ValueError when lengths differ or a time is negative.
    """

    model: str
    tensors: tuple[TensorSpec, ...]
    ready_gap_s: tuple[float, ...]
    forward_s: float
    origin: Origin
    batch_size: int = 0
    device: str = ""
    ranks: int = 1
    skew: float = 1.0
    step_s: float = 0.0
    other_s: float = 0.0
    optimizer: str = ""
    yardstick_s: float = 0.0

    def __post_init__(self) -> None:
        if len(self.tensors) != len(self.ready_gap_s):
            raise ValueError(f"{len(self.tensors)} tensors but {len(self.ready_gap_s)} ready gaps")
        if not self.tensors:
            raise ValueError("a profile needs at least one tensor")
        if min(self.forward_s, self.step_s, self.other_s, *self.ready_gap_s) < 0:
            raise ValueError("times must not be negative")
        if self.ranks < 1:
            raise ValueError(f"a profile is of at least one rank, got {self.ranks}")

    @cached_property
    def numel(self) -> tuple[int, ...]:
        """Elements per tensor, in backward order."""
        return tuple(spec.numel for spec in self.tensors)

    @property
    def backward_s(self) -> float:
        """Time of the whole backward pass."""
        return sum(self.ready_gap_s)

    @property
    def stepped_with(self) -> str:
        """The optimizer whose step was timed; before it was noted, models were profiled with their customary one."""
        from ssfx.work import counted, model_work

        if self.optimizer:
            return self.optimizer
        return model_work(self.model).optimizer if self.model in counted() else "sgd"

    def alone_s(self, accumulate: int = 1) -> float:
        """Return a step of `accumulate` micro-batches on a device that has nobody to exchange gradients with."""
        return accumulate * (self.forward_s + self.backward_s) + self.step_s + self.other_s

    @property
    def nbytes(self) -> int:
        """Bytes of one full dense gradient."""
        return sum(spec.nbytes for spec in self.tensors)

    def to_json(self) -> str:
        """Return the profile as JSON text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Return the profile that `to_json` wrote."""
        raw = json.loads(text)
        raw["tensors"] = tuple(TensorSpec(t["name"], tuple(t["shape"]), t["dtype"]) for t in raw["tensors"])
        raw["ready_gap_s"] = tuple(raw["ready_gap_s"])
        raw["origin"] = Origin(**raw["origin"])
        return cls(**raw)


def shipped_dir() -> Path:
    """Directory of the profiles that come with the package."""
    return Path(__file__).parent / "data" / "profiles"


def is_shipped(model: str) -> bool:
    """Return whether `load_shipped` has a profile of `model`."""
    from ssfx.work import work_dir

    return any((folder / f"{model}.json").exists() for folder in (shipped_dir(), work_dir()))


def load_shipped(model: str) -> Profile:
    """Return the shipped profile of `model`: the measured one if there is one, else the analytic one.

    The latter is of an A100 at the customary batch size. ConfigError names the models that have one.
    ssfx.roofline.profile_on chooses for a device.
    """
    # Late imports: the roofline makes Profiles.
    from ssfx.roofline import analytic_profile
    from ssfx.work import counted

    if found := measured(model):
        return found
    if model not in counted():
        have = ", ".join(sorted({*counted(), *(path.stem for path in shipped_dir().glob("*.json"))})) or "none"
        raise ConfigError(f"no profile is shipped for model {model!r}; shipped: {have}")
    return analytic_profile(model)


def measured(model: str) -> Profile | None:
    """Return the shipped profile of `model` that was measured, or None when there is none."""
    path = shipped_dir() / f"{model}.json"
    if not path.exists():
        return None
    found = Profile.from_json(path.read_text())
    return found if found.origin.kind == "measured" else None
