"""What a site wants of the jobs that Slurm gets from ssfx: the keys cluster.slurm.*, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import whole

PREFIX = "slurm."
"""How an option of a cluster begins that is for Slurm."""
WARNING_S = 120

_LIMIT = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
_UNLIMITED = ("UNLIMITED", "INFINITE")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_ITEM = re.compile(r"""(?:[^,"']|"[^"]*"|'[^']*')+""")
_ASSIGNED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<sign>[:=])(?P<value>.*)", re.DOTALL)
_GPUS = re.compile(r"(?:gres[:/])?gpu(?P<type>:[^:,()]*[^\d:,()][^:,()]*)?(?::(?P<count>\d+))?(?P<where>\(.*\))?")
_DIRECTIVES = {
    "time_limit": ("time", "SBATCH_TIMELIMIT"),
    "partition": ("partition", "SBATCH_PARTITION"),
    "account": ("account", "SBATCH_ACCOUNT"),
    "qos": ("qos", "SBATCH_QOS"),
    "constraint": ("constraint", "SBATCH_CONSTRAINT"),
    "memory": ("mem", "SBATCH_MEM_PER_NODE"),
    "gres": ("gres", "SBATCH_GRES"),
}
"""By field: the option of sbatch, and the variable that sbatch takes before what a script says."""
_OURS = {
    "SBATCH_ARRAY_INX": "which tasks there are",
    "SBATCH_OUTPUT": "where logs are",
    "SBATCH_SIGNAL": "when to stop",
}


@dataclass(frozen=True, kw_only=True)
class Site:
    """What is asked for besides nodes; None or nothing: Slurm's defaults, or its SBATCH_ variables."""

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
    gres: str | None = None
    """Generic resources of each node, as Slurm writes them: GPUs with their type. None: GPUs of any type."""
    memory: str | None = None
    """Memory of each node, as Slurm writes it; None: all of it."""
    container: str | None = None
    """Image that ranks run in: a .sif file by apptainer, another by srun's --container-image."""
    modules: tuple[str, ...] = ()
    """What `module load` loads first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that all processes of a task have."""
    warning_s: int = WARNING_S
    """Seconds before the time limit at which a task gets the signal to write a checkpoint and be requeued; 0: never."""

    def __post_init__(self) -> None:
        for name in (*_DIRECTIVES, "container"):
            value = getattr(self, name)
            if value is not None and (not value.strip() or set(value) & set('"\\\n\r')):
                raise ConfigError(f"cluster.slurm.{name}={value!r} is not a valid value of an sbatch option")
        if self.throttle is not None and self.throttle < 1:
            raise ConfigError(f"cluster.slurm.throttle must be at least 1, got {self.throttle}")
        if self.warning_s < 0:
            raise ConfigError(f"cluster.slurm.warning_s must not be negative, got {self.warning_s}")
        limit = self.time_limit
        if limit is not None and limit.upper() not in _UNLIMITED and _LIMIT.fullmatch(limit) is None:
            raise ConfigError(f"cluster.slurm.time_limit={limit} is no time; write minutes, 1:30:00, or UNLIMITED")
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
        del said["gres"]  # GPUs are part of it
        return [f"--{_DIRECTIVES[name][0]}={_quoted(value)}" for name, value in said.items() if value]

    def gres_of(self, gpus: int) -> str:
        """Return the option of a script that asks for `gpus` of each node, with the type and what else `gres` says.

        "" where nothing is asked for. ConfigError where `gres`, or SBATCH_GRES, has another number of GPUs.
        """
        text = self.gres or os.environ.get("SBATCH_GRES", "")
        parts = [part.strip() for part in text.split(",") if part.strip()]
        named = [(part, match) for part in parts if (match := _GPUS.fullmatch(part))]
        if not gpus:
            return f"--gres={_quoted(text)}" if text else ""
        if not named:
            parts = [f"gpu:{gpus}", *parts]
        elif len(named) == 1 and named[0][1]["count"] is None:
            part, match = named[0]
            parts[parts.index(part)] = f"gpu{match['type'] or ''}:{gpus}{match['where'] or ''}"
        elif (asked := sum(int(match["count"] or 1) for _, match in named)) != gpus:
            raise ConfigError(
                f"gres={text} asks for {asked} GPUs of a node, and the cluster has {gpus}; write "
                f"cluster.devices_per_node={asked}, or leave the number out"
            )
        return f"--gres={_quoted(','.join(parts))}"

    def limit_s(self) -> int | None:
        """Return the seconds that a task may take, by the key or SBATCH_TIMELIMIT; None where neither says."""
        text = self.time_limit or os.environ.get("SBATCH_TIMELIMIT", "")
        found = _LIMIT.fullmatch(text)
        if found is None:
            return None
        parts = [int(part) for part in found["clock"].split(":")]
        # days-hours[:minutes[:seconds]], hours:minutes:seconds, or minutes[:seconds]
        units = (3600, 60, 1) if found["days"] is not None or len(parts) == 3 else (60, 1, 1)
        limit_s = 86400 * int(found["days"] or 0) + sum(part * unit for part, unit in zip(parts, units, strict=False))
        return limit_s or None  # Slurm takes 0 for no limit


OPTIONS = tuple(PREFIX + one.name for one in fields(Site))


SBATCH = {**{option: name for name, (option, _) in _DIRECTIVES.items()}, **{one.name: one.name for one in fields(Site)}}
"""Field by its name, and by that of sbatch's option."""


def from_word(name: str, text: str) -> Any:
    """Return the option `name` as the command says it: `text`, letter by letter, as sbatch's own option has it.

    Commas, &, |, ^ and colons have Slurm's meaning; quotes around all of it are left out.
    """
    text = _without_quotes(text)
    if text == "null":
        return None
    if name in ("throttle", "warning_s"):
        return whole(text)
    if name == "modules":
        words = [_without_quotes(word) for word in text.removeprefix("[").removesuffix("]").split(",")]
        return [int(word) if word.isascii() and word.isdigit() else word for word in words]
    return _variables(text) if name == "environment" else text


def _without_quotes(text: str) -> str:
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def _variables(text: str) -> dict[str, str]:
    """Return the variables in "{NAME:value,NAME:value}"; a part between commas that names none is part of a value.

    A name in small letters before a number, as in mlx5_1:1, is the port of a device.
    """
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    found: list[tuple[str, str]] = []
    for part in _ITEM.findall(inner):
        match = _ASSIGNED.fullmatch(part)
        port = match and match["sign"] == ":" and not match["name"].isupper() and match["value"].strip().isdigit()
        if match and not (port and found):
            found.append((match["name"], match["value"]))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]},{part}")
        else:
            name = part.partition(":")[0].strip()
            raise ConfigError(
                f"cluster.slurm.environment: {name!r} is no name of a variable; write "
                "'cluster.slurm.environment={NCCL_SOCKET_IFNAME:^lo,docker}'"
            )
    names = [name for name, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"cluster.slurm.environment: {twice} is given twice; put a value with its name in quotes")
    return {name: _without_quotes(value) for name, value in found}


def _typed(name: str, value: Any) -> Any:
    if name in ("throttle", "warning_s"):
        count = whole(value)
        if isinstance(count, bool) or not isinstance(count, int):
            raise ConfigError(f"cluster.slurm.{name} must be a whole number, got {value!r}")
        return count
    if name == "modules":
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) and one for one in listed):
            raise ConfigError(f"cluster.slurm.modules must be a list of words, as [cuda/12.4,nccl], got {value!r}")
        return tuple(listed)
    if name == "environment":
        if not isinstance(value, Mapping):
            raise ConfigError(f"cluster.slurm.environment must be a mapping, as {{NCCL_DEBUG:INFO}}, got {value!r}")
        for key, one in value.items():  # YAML has lost how they were written
            if isinstance(one, bool | float) or not isinstance(one, int | str):
                raise ConfigError(
                    f'cluster.slurm.environment: {key} is {one!r} in YAML; put its value in quotes: "..."'
                )
        return {str(key): str(one) for key, one in value.items()}
    if name == "partition" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"cluster.slurm.{name} must be a word, got {value!r}")
    return str(value)


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.,:@%/+-]*", text) else f'"{text}"'
