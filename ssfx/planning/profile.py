"""The Profile: what a model's gradients look like in time, as a planner sees them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property

from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec


@dataclass(frozen=True)
class Profile:
    """Tensors in backward order with the backward time attributed to each, for one model and batch on one device.

    `ready_gap_s[i]` is the time between the gradients of tensor i-1 and i becoming ready (for i = 0: since backward
    began), so their sum is the backward time. `step_s` is the optimizer's time, `other_s` what an iteration takes
    beyond forward, backward and step. `ranks` is how many processes computed at once on the machine it was measured on;
    the times are then those of the slowest of them in each pass, `skew` times as long as a typical one's. `optimizer`
    is whose step was timed, "" in files from before it was noted. `yardstick_s`: how fast the machine computed then
    0 where that is not known. Raises ValueError when lengths differ or a time is negative.
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
