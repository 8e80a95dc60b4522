"""What a site wants of the jobs that Slurm gets from ssfx: the keys cluster.slurm.*, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ssfx.core.errors import ConfigError, unknown

PREFIX = "slurm."
"""How an option of a cluster begins that is for Slurm."""
WARNING_S = 120

_LIMIT = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_DIRECTIVES = {
    "time_limit": ("time", "SBATCH_TIMELIMIT"),
    "partition": ("partition", "SBATCH_PARTITION"),
    "account": ("account", "SBATCH_ACCOUNT"),
    "qos": ("qos", "SBATCH_QOS"),
    "constraint": ("constraint", "SBATCH_CONSTRAINT"),
    "memory": ("mem", "SBATCH_MEM_PER_NODE"),
}
"""By field: the option of sbatch, and the variable that sbatch takes before what a script says."""
_OURS = {
    "SBATCH_ARRAY_INX": "which tasks there are",
    "SBATCH_OUTPUT": "where logs are",
    "SBATCH_SIGNAL": "when to stop",
}


@dataclass(frozen=True, kw_only=True)
class Site:
    """What is asked for besides nodes; None or nothing: whatever Slurm, or its SBATCH_ variables, say."""

    throttle: int | None = None
    """Array tasks that may run at the same time."""
    time_limit: str | None = None
    """Of one task, as Slurm writes it: minutes, hours:minutes:seconds, days-hours, ..."""
    partition: str | None = None
    """Partition, or several with commas."""
    account: str | None = None
    """Account that is charged."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features that the nodes must have, as Slurm writes them."""
    memory: str | None = None
    """Memory of each node, as Slurm writes it; None: all of it."""
    container: str | None = None
    """Image that ranks run in: a .sif file by apptainer, another by srun's --container-image."""
    modules: tuple[str, ...] = ()
    """What `module load` loads first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that all processes of a task have."""
    warning_s: int = WARNING_S
    """Seconds before the time limit at which a task is told to write a checkpoint and be requeued; 0: never."""

    def __post_init__(self) -> None:
        for name in (*_DIRECTIVES, "container"):
            value = getattr(self, name)
            if value is not None and (not value.strip() or set(value) & set('"\\\n\r')):
                raise ConfigError(f"cluster.slurm.{name}={value!r} is nothing that a script can say to Slurm")
        if self.throttle is not None and self.throttle < 1:
            raise ConfigError(f"cluster.slurm.throttle must be at least 1, got {self.throttle}")
        if self.warning_s < 0:
            raise ConfigError(f"cluster.slurm.warning_s must not be negative, got {self.warning_s}")
        if self.time_limit is not None and _LIMIT.fullmatch(self.time_limit) is None:
            raise ConfigError(f"cluster.slurm.time_limit={self.time_limit} is no time; write minutes, or 1:30:00")
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"cluster.slurm.environment: {name!r} is no name of a variable")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Site:
        """Return the site of the options in `values`; ConfigError for an unknown one or one of another type."""
        known = [one.name for one in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("option of cluster.slurm", name, known)
        return cls(**{name: _typed(name, value) for name, value in values.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        """Return what `of` takes, as what JSON can hold."""
        return {**asdict(self), "environment": dict(self.environment), "modules": list(self.modules)}

    def directives(self) -> list[str]:
        """Return the options of a script for sbatch, those that say who pays and where, and for how long.

        ConfigError where a variable of sbatch, which comes before the script, says something else.
        """
        said = {name: getattr(self, name) for name in _DIRECTIVES}
        for name, (_, variable) in _DIRECTIVES.items():
            other = os.environ.get(variable)
            if said[name] is not None and other not in (None, said[name]):
                raise ConfigError(f"cluster.slurm.{name}={said[name]} and {variable}={other} differ; drop one of them")
        for variable, what in _OURS.items():
            if variable in os.environ:
                raise ConfigError(f"ssfx says {what}, and {variable} would say it before; unset {variable}")
        said["memory"] = said["memory"] or "0"  # without it a node gives the partition's default, which may be little
        return [f"--{option}={_quoted(said[name])}" for name, (option, _) in _DIRECTIVES.items() if said[name]]

    def limit_s(self) -> int | None:
        """Return the seconds that a task may take, by the key or SBATCH_TIMELIMIT; None where neither says."""
        text = self.time_limit or os.environ.get("SBATCH_TIMELIMIT", "")
        found = _LIMIT.fullmatch(text)
        if found is None:
            return None
        parts = [int(part) for part in found["clock"].split(":")]
        # days-hours[:minutes[:seconds]], hours:minutes:seconds, or minutes[:seconds]
        units = (3600, 60, 1) if found["days"] is not None or len(parts) == 3 else (60, 1, 1)
        return 86400 * int(found["days"] or 0) + sum(part * unit for part, unit in zip(parts, units, strict=False))


OPTIONS = tuple(PREFIX + one.name for one in fields(Site))


def _typed(name: str, value: Any) -> Any:
    if name in ("throttle", "warning_s"):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"cluster.slurm.{name} must be a whole number, got {value!r}")
        return value
    if name == "modules":
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) and one for one in listed):
            raise ConfigError(f"cluster.slurm.modules must be a list of words, as [cuda/12.4,nccl], got {value!r}")
        return tuple(listed)
    if name == "environment":
        if not isinstance(value, Mapping):
            raise ConfigError(f"cluster.slurm.environment must be a mapping, as {{NCCL_DEBUG:INFO}}, got {value!r}")
        return {str(key): str(one) for key, one in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"cluster.slurm.{name} must be a word, got {value!r}")
    return str(value)


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.,:@%/+-]*", text) else f'"{text}"'
