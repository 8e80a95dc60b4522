"""Schemes in the order of their steps on one setting, and what may be said of each."""

from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from typing import Any

from ssfx.advice.sending import LIMIT, steps_of
from ssfx.advice.setting import WHOLE, Setting, Trial
from ssfx.advice.trust import Trust
from ssfx.core.spec import name_of
from ssfx.schemes import schemes
from ssfx.schemes.search.extra_steps import ExtraSteps

UNSURE = 0.5
"""Mean error of the simulator, relative, above which a time is not to be relied on."""


@dataclass(frozen=True)
class Entry:
    """One way to take a step. `rank`: the places that its time may have, its error and those of the others considered.

    `dense_s` is the step of tuned dense. `trust`: the error of steps that send alike on such a network, None where none
    were scored.
    """

    trial: Trial
    setting: Setting
    dense_s: float
    rank: tuple[int, int] = (0, 0)
    trust: Trust | None = None

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        return self.trial.scheme

    @property
    def name(self) -> str:
        """Name of the method: the scheme's, or that of a scheme with options."""
        return self.trial.name

    @property
    def iteration_s(self) -> float:
        """Seconds of a step."""
        return self.trial.iteration_s

    @property
    def vs_dense(self) -> float:
        """How many times as fast as tuned dense it is."""
        return self.dense_s / self.iteration_s

    @property
    def work(self) -> float:
        """How many devices' work all of them do."""
        return self.setting.cluster.world_size * self.setting.alone_s / self.iteration_s

    @property
    def samples_per_s(self) -> float:
        """Samples of all devices in a second."""
        return self.setting.cluster.world_size * self.setting.samples / self.iteration_s

    @property
    def unsure(self) -> bool:
        """Whether times of steps that send alike were off by more than UNSURE on average."""
        return self.trust is not None and self.trust.mean > UNSURE

    @property
    def type(self) -> str:
        """The line of a script that takes such steps."""
        options = {key: value for key, value in self.trial.options.items() if key != WHOLE}
        if schemes[self.scheme].chooses and options.get("quality") == "normal":
            del options["quality"]
        given = {"scheme": self.scheme, **options}.items()
        return f"ssfx.attach(...,{','.join(f'{key}={_quoted(value)}' for key, value in given)})"

    @property
    def compressors(self) -> tuple[str, ...]:
        """Compressors that its plan uses; none where everything stayed dense."""
        return tuple(sorted({str(one.compressor) for one in self.trial.compressed}))

    @cached_property
    def needed(self) -> ExtraSteps:
        """What a training of so many dense steps of this network needs, by recorded runs that hold for it."""
        return steps_of(self.trial.plan, self.setting.network, self.setting.steps)

    @property
    def steps(self) -> float:
        """Steps to what dense training reaches in its steps; infinity where unknown."""
        return inf if self.needed.share is None else self.setting.steps * (1 + self.needed.share)

    @property
    def more_steps(self) -> float | None:
        """How many more steps they needed, as a share; None where it is unknown or the upper end above LIMIT."""
        return self.needed.share if self.needed.within(LIMIT) else None

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold of it."""
        step, known = self.trial.simulated, self.steps < inf
        names = "scheme name type compressors rank iteration_s vs_dense work samples_per_s more_steps"
        return {
            **{name: getattr(self, name) for name in names.split()},
            "title": self.trial.title,
            "options": dict(self.trial.options),
            "exposed_comm_s": step.exposed_comm_s,
            "extrapolated": step.outside,
            "plan_digest": step.plan.digest,
            "train_steps": self.setting.steps,
            "steps": self.steps if known else None,
            "time_s": self.steps * self.iteration_s if known else None,
            "steps_rest_on": str(self.needed),
            "error": self.trust and asdict(self.trust),
        }


@dataclass(frozen=True)
class Ranking:
    """All schemes, fastest first. `left_out`: those that cannot be planned here, each with the reason."""

    setting: Setting
    entries: tuple[Entry, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def dense(self) -> Entry:
        """Tuned dense: the fastest of the schemes it is chosen from."""
        return next(entry for entry in self.entries if entry.trial.tuned)

    def unclear(self, entry: Entry) -> bool:
        """Return whether the error of the simulator leaves open which is faster, `entry` or tuned dense."""
        first_s, second_s = sorted((entry.iteration_s, self.dense.iteration_s))
        return not surely_less(first_s, second_s, self.bar(entry))

    def bar(self, entry: Entry) -> float:
        """Return the error of the simulator for an entry, relative; that of dense where none was scored."""
        trust = entry.trust or self.dense.trust
        return trust.mean if trust else 0.0

    @property
    def compressing(self) -> tuple[Entry, ...]:
        """The entries whose plans compress something, fastest first."""
        return tuple(entry for entry in self.entries if entry.compressors)

    @property
    def recommendable(self) -> tuple[Entry, ...]:
        """Those of them that an answer may name: with a validated error and a record of quality, fastest first."""
        return tuple(one for one in self.compressing if one.trust is not None and one.more_steps is not None)

    @property
    def codec_kinds(self) -> dict[str, list[str]]:
        """Kinds of origin, and the compressors in use whose times are of that kind."""
        kinds: dict[str, set[str]] = {}
        for spec in {spec for entry in self.entries for spec in entry.compressors}:
            name = name_of(spec)
            kinds.setdefault(self.setting.system.codec(name).origin.kind, set()).add(name)
        return {kind: sorted(names) for kind, names in sorted(kinds.items())}

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """What was charged beyond the range that it is known for, each once, of all entries."""
        lines: dict[str, str] = {}
        for entry in self.entries:
            for line in entry.trial.simulated.outside:
                lines.setdefault(line.partition(":")[0], line)
        return tuple(lines.values())


def surely_less(first_s: float, second_s: float, error: float) -> bool:
    """Return whether a first time is less than a second one even if both are off by up to `error`, relative."""
    return first_s * (1 + error) < second_s * (1 - error)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
