"""Schemes in the order of their steps on one setting, and what may be said of each."""

from dataclasses import dataclass
from functools import cached_property

from ssfx.advice.sending import LIMIT, steps_of
from ssfx.advice.setting import TUNED, Setting, Trial
from ssfx.advice.trust import Trust
from ssfx.compressors import build
from ssfx.core.spec import name_of
from ssfx.schemes import schemes
from ssfx.schemes.search.extra_steps import TRAIN_STEPS, ExtraSteps
from ssfx.schemes.search.recorded_network import Network


@dataclass(frozen=True)
class Entry:
    """One scheme. `rank` is the range of places that its time may have, its error and those of the others considered.

    `scaling` is the time of one device alone over that of a step; `speedup_vs_dense` is over tuned dense. `trust` is
    the error of steps that send alike on such a network, None where none were scored. `network` is what trains.
    """

    trial: Trial
    rank: tuple[int, int]
    throughput_samples_per_s: float
    scaling: float
    speedup_vs_dense: float
    network: Network
    trust: Trust | None = None
    train_steps: int = TRAIN_STEPS

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        return self.trial.scheme

    @property
    def iteration_s(self) -> float:
        """Seconds of a step."""
        return self.trial.iteration_s

    @property
    def compressors(self) -> tuple[str, ...]:
        """Compressors that its plan uses; none where everything stayed dense."""
        return tuple(sorted({str(one.compressor) for one in self.trial.compressed}))

    @cached_property
    def needed(self) -> ExtraSteps:
        """What a training of `train_steps` dense steps of this network needs, by recorded runs that hold for it."""
        return steps_of(self.trial.plan, self.network, self.train_steps)

    @property
    def more_steps(self) -> float | None:
        """How many more steps they needed, as a share; None where it is unknown or the upper end above LIMIT."""
        return self.needed.share if self.needed.within(LIMIT) else None

    @property
    def named(self) -> str:
        """Name of the scheme; of one that chooses, with what it chose and for which share of the elements."""
        if not schemes[self.scheme].chooses:
            return self.scheme
        plan, numel = self.trial.plan, dict[str, int]()
        for _, lane in plan.lanes():
            for one in lane.segments:
                numel[one.compressor or "dense"] = numel.get(one.compressor or "dense", 0) + plan.numel(one)
        total = sum(numel.values())
        parts = [f"{what} for {count / total:.0%}" for what, count in sorted(numel.items(), key=lambda it: -it[1])]
        return f"{self.scheme} (here {', '.join(parts) if len(parts) > 1 else next(iter(numel))})"

    @property
    def leaves_tensors_out(self) -> bool:
        """True when one selection covers several tensors, so that nothing may be sent of some."""
        return any(len(one.tensors) > 1 and build(str(one.compressor)).sparse for one in self.trial.compressed)


@dataclass(frozen=True)
class Ranking:
    """All schemes, fastest first. `left_out`: those that cannot be planned here, each with the reason."""

    setting: Setting
    trust: Trust | None
    entries: tuple[Entry, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def dense(self) -> Entry:
        """Tuned dense: the fastest of the schemes it is chosen from."""
        return next(entry for entry in self.entries if entry.scheme in TUNED)

    def unclear(self, entry: Entry) -> bool:
        """Return whether the error of the simulator leaves open which is faster, `entry` or tuned dense."""
        first_s, second_s = sorted((entry.iteration_s, self.dense.iteration_s))
        return not surely_less(first_s, second_s, self.bar(entry))

    def bar(self, entry: Entry) -> float:
        """Return the error of the simulator for an entry, relative; 0 where none was scored."""
        trust = entry.trust or self.trust
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
