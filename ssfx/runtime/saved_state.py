"""What a saved state of an exchange holds, field by field: a file that a user kept may be damaged, or another's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from ssfx.compressors.memories import Memory, memories
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import DAMAGED
from ssfx.core.typed import typed
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes import Scheme

STATE_FORMAT = 1


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


def identity(
    scheme: Scheme, given: dict[str, Any], memory: Memory | None, exempt: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return what determines an exchange besides the model, as text."""
    options = repr(sorted(asdict(scheme.options(given)).items()))
    return {
        "scheme": scheme.name,
        "options": f"{options}, exempt {', '.join(sorted(exempt))}" if exempt else options,
        "memory_kind": str(memory and memories.canonical(memory.name, asdict(memory.options))),
    }


def plan_of_state(
    state: Any, mine: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], memory: Memory | None,
    frozen: Mapping[str, tuple[int, ...]] | None = None,
) -> Plan:  # fmt: skip
    """Return the plan in a state; ConfigError unless `state_dict` gave it, of this exchange, and it is finite.

    `mine` are entries that must be equal; `shapes` are those of the parameters in the plan, and `frozen` of others that
    may have a memory.
    """
    keys = {entry.name for entry in fields(_State) if entry.default is MISSING} | mine.keys()
    if not isinstance(state, Mapping) or not keys <= state.keys():
        raise ConfigError("this is not a state of ssfx: load what sync.state_dict() returned on this rank")
    if isinstance(state["format"], int) and state["format"] != STATE_FORMAT:
        raise ConfigError(
            f"this state has format {state['format']}, and this version of ssfx reads {STATE_FORMAT}; "
            "load it with the version that saved it"
        )
    _check_types(state)
    for key, value in mine.items():
        if state[key] != value:
            raise ConfigError(f"this state was saved with {key}={state[key]}, not {value}; resume with the same {key}")
    _check_memory(state["memory"], {**shapes, **(frozen or {})}, memory.buffers if memory is not None else ())
    try:
        plan = Plan.from_json(state["plan"])
    except DAMAGED as error:
        raise ConfigError(f"the plan in this state cannot be read ({error}); resume from another file") from None
    if {spec.name: spec.shape for spec in plan.tensors} != shapes:
        raise ConfigError("this state was saved for another model: parameter names or shapes differ")
    return plan


def _check_memory(
    kept: Mapping[str, Mapping[str, torch.Tensor]], shapes: Mapping[str, tuple[int, ...]], buffers: Sequence[str]
) -> None:
    for name, held in kept.items():
        if name not in shapes:
            raise ConfigError(f"this state was saved for another model: it has a memory of {name}, which is not here")
        for buffer, value in held.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise ConfigError(
                    f"the {buffer} of {name} in this state is not finite, and every step would be skipped; "
                    "resume from an earlier checkpoint"
                )
            if buffer in buffers and value.numel() != torch.Size(shapes[name]).numel():
                raise ConfigError(
                    f"the {buffer} of {name} in this state has shape {tuple(value.shape)}, the parameter "
                    f"{shapes[name]}; it was saved for another model"
                )


def _check_types(state: Mapping[str, Any]) -> None:
    """Raise ConfigError for a field of another type, or that cannot be; fields of others are left alone."""
    names = {entry.name for entry in fields(_State)}
    try:
        typed(_State, {name: value for name, value in state.items() if name in names})
    except DAMAGED as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"this state is damaged ({said}); resume from another file") from None


_LONGEST = 150
"""Characters of a reason that a line repeats."""


def read_state(path: Path) -> dict[str, Any]:
    """Return what a rank saved of its state, on the CPU; RunError in one line with the path for any other file.

    Nothing in the file is executed.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # of zipfile, pickle, torch or C++, as the damage is
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]
        raise RunError(f"{path} is damaged, or no state that ssfx saved ({reason}); use an earlier one") from None
    if not isinstance(state, dict):
        raise RunError(f"{path} is no state that ssfx saved, but {type(state).__name__}; use an earlier one")
    return state
