"""The Profile: what a model's gradients look like in time, as a planner sees them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path

from ssfx.core.errors import ConfigError
from ssfx.core.files import loads, write_json
from ssfx.core.origin import Origin
from ssfx.core.typed import MOST, typed
from ssfx.planning.plan import ITEM_BYTES, TensorSpec


@dataclass(frozen=True)
class InPrecision:
    """The times of a counted profile in another precision, as those of `Profile` are."""

    ready_gap_s: tuple[float, ...]
    forward_s: float
    step_s: float
    note: str
    """How they were obtained."""
    host_bound: bool = False
    """As that of `Profile`."""


@dataclass(frozen=True)
class Profile:
    """Tensors in backward order with the backward time attributed to each, for one model and batch on one device.

    Raises ValueError when lengths differ, a time is negative or there is no rank.
    """

    model: str
    """Name of the model."""
    tensors: tuple[TensorSpec, ...]
    """Trainable tensors, the one whose gradient is ready first at position 0."""
    ready_gap_s: tuple[float, ...]
    """Seconds between the gradients of tensor i-1 and i becoming ready (for i = 0: since backward began); their sum is
    the backward time."""
    forward_s: float
    """Seconds of a forward pass."""
    origin: Origin
    """How and on what the times were obtained."""
    batch_size: int = 0
    """Samples per rank; 0 where it is not known."""
    device: str = ""
    """Data sheet of the device (cpu, a100, ...); empty where it is not known."""
    ranks: int = 1
    """Processes that computed at once on the machine. Times are those of the slowest of them in each pass."""
    skew: float = 1.0
    """How many times as long the slowest rank took as a typical one."""
    step_s: float = 0.0
    """Seconds of the optimizer's step."""
    other_s: float = 0.0
    """Seconds that an iteration takes beyond forward, backward and step."""
    optimizer: str = ""
    """Whose step was timed; empty in files from before it was noted."""
    precision: str = ""
    """What it was counted in, outside of regions that say it themselves, or measured in where that is not fp32; else
    empty."""
    host_bound: bool = False
    """Whether the host, which issues kernels, holds a step that was counted, so that the device waits for it."""
    family: str = ""
    """What kind of network it is, where that was said; "": its tensors and operators tell."""
    attends: bool = False
    """Whether attention was counted among its operators."""
    in_other: Mapping[str, InPrecision] = field(default_factory=dict, hash=False)
    """The same in the other precisions of the device; empty of what was measured."""

    def __post_init__(self) -> None:
        if len(self.tensors) != len(self.ready_gap_s):
            raise ValueError(f"{len(self.tensors)} tensors but {len(self.ready_gap_s)} ready gaps")
        if not self.tensors:
            raise ValueError("a profile needs at least one tensor")
        times = [self.forward_s, self.step_s, self.other_s, self.skew, *self.ready_gap_s]
        for other in self.in_other.values():
            if len(other.ready_gap_s) != len(self.tensors):
                raise ValueError(f"{len(self.tensors)} tensors but {len(other.ready_gap_s)} ready gaps")
            times += [other.forward_s, other.step_s, *other.ready_gap_s]
        if not all(0 <= one < inf for one in times):
            raise ValueError("times must be finite and not negative")
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
        """Return a step of `accumulate` micro-batches on one device alone, without an exchange."""
        return accumulate * (self.forward_s + self.backward_s) + self.step_s + self.other_s

    @property
    def nbytes(self) -> int:
        """Bytes of one full dense gradient."""
        return sum(spec.nbytes for spec in self.tensors)

    def to_json(self) -> str:
        """Return the profile as JSON text."""
        unsaid = ("precision", "in_other", "batch_size", "host_bound", "family", "attends")
        raw = {key: value for key, value in asdict(self).items() if value or key not in unsaid}
        return json.dumps(raw, separators=(",", ":"))

    def at(self, precision: str, what: str) -> Profile:
        """Return the profile, called `what`, in a precision; ConfigError where it was not counted in that."""
        if precision == self.precision:
            return self
        if precision in self.in_other:
            other = self.in_other[precision]
            return replace(
                self,
                ready_gap_s=other.ready_gap_s,
                forward_s=other.forward_s,
                step_s=other.step_s,
                origin=replace(self.origin, note=other.note),
                precision=precision,
                in_other={},
                host_bound=other.host_bound,
            )
        if self.origin.kind == "measured":
            raise ConfigError(f"{what} was measured in the precision of its script; drop precision={precision}")
        if not self.precision:
            raise ConfigError(
                f"{what} does not say in which precision it was made; make it again with ssfx profile "
                f"FILE.py:FUNCTION --on {self.device or 'DEVICE'} precision={precision}"
            )
        has = " or ".join(f"precision={one}" for one in (self.precision, *self.in_other))
        raise ConfigError(f"{what} was counted for {self.device}, which does not compute in {precision}; use {has}")

    def in_order(self, tensors: tuple[TensorSpec, ...]) -> Profile:
        """Return the profile with its tensors in another order; a tensor is not ready before those that precede it."""
        at_s, ready_s = 0.0, {}
        for spec, gap_s in zip(self.tensors, self.ready_gap_s, strict=True):
            at_s += gap_s
            ready_s[spec.name] = at_s
        reached_s, gaps = 0.0, []
        for spec in tensors:
            gaps.append(max(0.0, ready_s[spec.name] - reached_s))
            reached_s = max(reached_s, ready_s[spec.name])
        return replace(self, tensors=tensors, ready_gap_s=tuple(gaps))

    def save(self, path: str | os.PathLike[str]) -> None:
        """The profile is in the file `path`, which `ssfx plan`, `simulate` and `advise` take as profile=PATH."""
        write_json(Path(path), self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Return the profile that `to_json` wrote, of this version or an earlier one."""
        raw = loads(text)
        found = typed(cls, raw)
        names = (found.model, found.device, found.optimizer, found.family, *(spec.name for spec in found.tensors))
        if odd := next((name for name in names if not name.isprintable()), None):
            raise ValueError(f"{odd!r} is no name: it has characters that no line can show")
        for spec in found.tensors:
            if min(spec.shape, default=0) < 0 or spec.numel > MOST or spec.dtype not in ITEM_BYTES:
                raise ValueError(f"{spec.name} cannot be a gradient: {spec.dtype} of shape {list(spec.shape)[:8]}")
        if "batch_size" in raw and found.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {found.batch_size}; unknown ones are left out")
        return found
