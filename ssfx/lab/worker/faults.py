"""Fault injection for tests: one declared fault, on one rank, at one step and phase, that happens once and is recorded.

Declared in the environment as SSFX_FAULT="kind:rank=1,step=5,phase=backward". `run` (the first digits of a run id)
restricts it to one case of a batch. Nothing but this variable can cause a fault, and a row whose run had one says so.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import loads, read, write_json
from ssfx.lab.worker.heartbeat import PHASES

VARIABLE = "SSFX_FAULT"
KINDS = ("kill", "hang", "raise", "nan", "slow", "disk_full")
SLOW_S = 1.0


class InjectedFault(RuntimeError):
    """What the fault `raise` raises."""


@dataclass(frozen=True)
class Fault:
    """What happens where. nan spoils the first module output of a forward pass, so its phase is forward."""

    kind: str
    rank: int = 0
    step: int = 0
    phase: str = "forward"
    run: str = ""

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Return the fault that `text` declares; ConfigError names the part that is wrong."""
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise unknown("fault", kind, KINDS)
        options: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            key, _, value = part.partition("=")
            if key not in ("rank", "step", "phase", "run"):
                raise unknown("fault option", key, ("rank", "step", "phase", "run"))
            try:
                options[key] = int(value) if key in ("rank", "step") else value
            except ValueError:
                raise ConfigError(f"fault option {key} must be a number, got {value!r}") from None
        fault = cls(kind, **options)
        if fault.phase not in PHASES:
            raise unknown("phase", fault.phase, PHASES)
        if kind == "nan" and fault.phase != "forward":
            raise ConfigError(f"fault nan happens in phase forward, not {fault.phase}")
        return fault


def fired(run_dir: Path) -> list[dict[str, Any]]:
    """Return the records of the faults that happened in any attempt of a run."""
    return [read(path, _fired) for path in sorted(run_dir.glob("attempt-*/fault-rank*.json"))]


def _fired(text: str) -> dict[str, Any]:
    record = loads(text)
    return {key: record[key] for key in ("kind", "rank", "step", "phase")}


class Injector:
    """Makes the declared fault happen when its rank reaches its step and phase, unless an attempt already had it."""

    def __init__(self, rank: int, run_dir: Path, attempt_dir: Path) -> None:
        declared = os.environ.get(VARIABLE)
        fault = Fault.parse(declared) if declared else None
        mine = fault is not None and fault.rank == rank and run_dir.name.startswith(fault.run)
        self._fault = fault if mine and not fired(run_dir) else None
        self._record = attempt_dir / f"fault-rank{rank}.json"

    def __call__(self, step: int, phase: str) -> None:
        """Do nothing, or the fault."""
        fault = self._fault
        if fault is None or (step, phase) != (fault.step, fault.phase):
            return
        self._fault = None
        record = {"kind": fault.kind, "rank": fault.rank, "step": step, "phase": phase}
        write_json(self._record, json.dumps(record))
        match fault.kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                while True:
                    time.sleep(60)
            case "raise":
                raise InjectedFault(f"injected at step {step} in {phase}")
            case "slow":
                time.sleep(SLOW_S)
            case "disk_full":
                # No file may grow any more; Python ignores SIGXFSZ, so writes fail with OSError as on a full disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            case "nan":
                _spoil_next_forward()


def _spoil_next_forward() -> None:
    from torch.nn.modules.module import register_module_forward_hook

    def spoil(_module: Any, _inputs: Any, output: Any) -> Any:
        handle.remove()
        return output * float("nan")

    handle = register_module_forward_hook(spoil)
