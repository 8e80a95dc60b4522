"""What a saved state of an exchange holds, field by field: a file that a user kept may be damaged, or another's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from ssfx.core.errors import ConfigError
from ssfx.core.files import DAMAGED
from ssfx.core.typed import typed
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile


@dataclass(frozen=True)
class _Rates:
    rates: Mapping[str, float]
    limited_steps: int


@dataclass(frozen=True)
class _KeptBack:
    steps: int
    squares: tuple[float, float]


@dataclass(frozen=True)
class _PlanWatch:
    given: Mapping[str, Any]
    error: float | None
    replans: tuple[str, ...]
    usual_s: float | None
    deviated: bool
    times: tuple[float, ...]


@dataclass(frozen=True)
class _Trial:
    plans: tuple[str, ...]
    seen_s: tuple[tuple[float, ...], ...]
    left: tuple[int, ...]
    round: int
    at: int
    steps_s: tuple[float, ...]
    visits_s: tuple[float, ...]
    timed: int
    skipped: int

    def __post_init__(self) -> None:
        for text in self.plans:
            Plan.from_json(text)
        places = range(len(self.plans))
        if len(self.seen_s) != len(self.plans) or not set(self.left) <= set(places) or self.at not in places:
            raise ValueError("a trial of plans that are not in it")


@dataclass(frozen=True)
class _State:
    format: int
    world_size: int
    rank: int
    scheme: str
    options: str
    memory_kind: str
    plan: str
    step: int
    skipped_steps: int
    seed: int
    scale: float
    rates: _Rates | None
    memory: Mapping[str, Mapping[str, torch.Tensor]]
    profile: str
    costs: str | None
    observed: tuple[tuple[Mapping[str, float], ...], tuple[float, ...]] | None
    probe_times_s: tuple[float, ...] | None = None
    kept_back: _KeptBack | None = None
    plan_watch: _PlanWatch | None = None
    trial: _Trial | None = None

    def __post_init__(self) -> None:
        if min(self.step, self.skipped_steps) < 0:
            raise ValueError("a number of steps is negative")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"the loss scale is {self.scale:g}")
        Profile.from_json(self.profile)
        if self.costs is not None:
            Costs.from_json(self.costs)


def check_types(state: Mapping[str, Any]) -> None:
    """Raise ConfigError for a field of another type, or that cannot be; fields of others are left alone."""
    names = {one.name for one in fields(_State)}
    try:
        typed(_State, {name: value for name, value in state.items() if name in names})
    except DAMAGED as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"this state is damaged ({said}); resume from another file") from None
