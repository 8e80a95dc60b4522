"""The memory of all parameters, by name: it survives re-planning, checkpoints and rollbacks.

A saved state is checked field by field: a file that a user kept may be damaged, or another's.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
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

State = dict[str, torch.Tensor]
COMPRESSOR = "compressor."
"""Prefix of buffers that belong to a compressor; they are not gradients and do not follow the loss scale."""
COLLECTIVE = "collective."
"""Prefix of buffers that belong to a message's collective; of these only thresholds follow the loss scale."""
THRESHOLD = COLLECTIVE + "threshold"


class Store:
    """Committed float32 buffers per parameter name; messages hand in views of their flat buffers when they are built.

    Buffers have the parameter's shape in `state_dict` and are flat elsewhere.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, State] = {}
        self.loss_scale = 1.0
        """What gradients are multiplied by, and so what memories and thresholds are."""

    def get(self, name: str, buffer: str) -> torch.Tensor | None:
        """Return the committed buffer of a parameter, or None when it has none yet."""
        return self._buffers.get(name, {}).get(buffer)

    def put(self, name: str, buffer: str, value: torch.Tensor) -> None:
        """Make `value` (a view or an owned tensor) the committed buffer."""
        self._buffers.setdefault(name, {})[buffer] = value

    def drop(self, name: str, buffer: str) -> None:
        """Forget a buffer whose content has been sent."""
        self._buffers.get(name, {}).pop(buffer, None)

    def drop_all(self, name: str, prefix: str) -> None:
        """Forget all buffers of a parameter whose names begin with `prefix`."""
        state = self._buffers.get(name, {})
        for buffer in [buffer for buffer in state if buffer.startswith(prefix)]:
            del state[buffer]

    def rename(self, name: str, new_name: str) -> None:
        """What was kept of a parameter is kept under another name."""
        if name in self._buffers:
            self._buffers[new_name] = self._buffers.pop(name)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all buffers of other parameters."""
        self._buffers = {name: state for name, state in self._buffers.items() if name in names}

    def follow(self, loss_scale: float) -> None:
        """Bring what memories keep to the loss scale of the gradients to come (D-19)."""
        if loss_scale != self.loss_scale:
            self.scale(loss_scale / self.loss_scale)
            self.loss_scale = loss_scale

    def scale(self, factor: float) -> None:
        """Multiply what memories keep, and thresholds, by `factor`."""
        for state in self._buffers.values():
            for buffer, value in state.items():
                if buffer.startswith(THRESHOLD) or not buffer.startswith((COMPRESSOR, COLLECTIVE)):
                    value.mul_(factor)

    def norm(self, buffer: str) -> float:
        """Return the Euclidean norm of one buffer over all parameters, 0 when there is none."""
        squares = [float(state[buffer].square().sum()) for state in self._buffers.values() if buffer in state]
        return math.sqrt(sum(squares))

    def nbytes(self) -> int:
        """Return the bytes of all committed buffers."""
        return sum(value.nbytes for state in self._buffers.values() for value in state.values())

    def threshold(self) -> float | None:
        """Return the mean of the thresholds that collectives steer, for a loss scale of 1; None when there is none."""
        thresholds = [
            float(value)
            for state in self._buffers.values()
            for buffer, value in state.items()
            if buffer.startswith(THRESHOLD) and value.numel() == 1
        ]
        return sum(thresholds) / len(thresholds) / self.loss_scale if thresholds else None

    def names(self) -> Iterable[str]:
        """Return the parameter names that have state."""
        return self._buffers.keys()

    def state_dict(self) -> dict[str, State]:
        """Return copies of all buffers by parameter name."""
        return {
            name: {buffer: value.detach().clone() for buffer, value in state.items()}
            for name, state in self._buffers.items()
            if state
        }

    def load_state_dict(self, state: dict[str, State], device: torch.device) -> None:
        """Replace everything by copies of `state` on `device`; messages must be rebuilt afterwards."""
        self._buffers = {
            name: {buffer: value.detach().to(device, copy=True) for buffer, value in buffers.items()}
            for name, buffers in state.items()
        }


STATE_FORMAT = 1


@dataclass(frozen=True)
class _Rates:
    rates: Mapping[str, float]
    limited_steps: int


@dataclass(frozen=True)
class _PlanWatch:
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
    every = asdict(scheme.options(given)).items()
    # What training does besides bears on which plan is made, and a state has one: it holds for any.
    options = repr(sorted((name, value) for name, value in every if name not in ("clipped", "batch")))
    return {
        "scheme": scheme.name,
        "options": f"{options}, exempt {', '.join(sorted(exempt))}" if exempt else options,
        "memory_kind": str(memory and memories.canonical(memory.name, asdict(memory.options))),
    }


def plan_of_state(
    state: Any,
    mine: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    memory: Memory | None,
    frozen: Mapping[str, tuple[int, ...]] | None = None,
) -> Plan:
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
