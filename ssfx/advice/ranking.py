"""advise(): all schemes on one setting, ranked as far as the error of the simulator allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ssfx.advice.break_even import BreakEven, BreakEvens
from ssfx.advice.checked import network_of
from ssfx.advice.sending import more_steps, ways
from ssfx.advice.setting import TUNED, Setting, Trial
from ssfx.advice.trust import Trust, trust_in, trust_in_sending
from ssfx.compressors import build
from ssfx.core.doing import doing
from ssfx.core.errors import ConfigError
from ssfx.schemes import schemes
from ssfx.schemes.search.auto_steps import TRAIN_STEPS


@dataclass(frozen=True)
class Entry:
    """One scheme. `rank` is the range of places that its time may have, its error and those of the others considered.

    `scaling` is the time of one device alone over that of a step; `speedup_vs_dense` is over tuned dense. `trust` is
    the error of steps that send alike on such a network, None where none were scored.
    """

    trial: Trial
    rank: tuple[int, int]
    throughput_samples_per_s: float
    scaling: float
    speedup_vs_dense: float
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
    def more_steps(self) -> float | None:
        """How many more steps recorded runs of its methods needed, as a share; None where its quality is unknown."""
        return more_steps(self.trial.plan, self.train_steps)

    @property
    def leaves_tensors_out(self) -> bool:
        """True when one selection covers several tensors, so that nothing may be sent of some."""
        return any(len(one.tensors) > 1 and build(str(one.compressor)).sparse for one in self.trial.compressed)


@dataclass(frozen=True)
class Advice:
    """All schemes, fastest first. `left_out`: those that cannot be planned here, each with the reason."""

    setting: Setting
    trust: Trust | None
    entries: tuple[Entry, ...]
    left_out: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Return the first screen of `ssfx advise`."""
        from ssfx.advice.screen import as_text, first_screen  # late: it reads what this defines

        return as_text(first_screen(self))

    @property
    def dense(self) -> Entry:
        """Tuned dense: the fastest of the schemes it is chosen from."""
        return next(entry for entry in self.entries if entry.scheme in TUNED)

    def unclear(self, entry: Entry) -> bool:
        """Return whether the error of the simulator leaves open which is faster, `entry` or tuned dense."""
        first_s, second_s = sorted((entry.iteration_s, self.dense.iteration_s))
        trust = entry.trust or self.trust
        return trust is not None and not surely_less(first_s, second_s, trust.mean)

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
            name = spec.partition("(")[0]
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


def advise(setting: Setting, names: Iterable[str] | None = None, trust: Trust | None = None) -> Advice:
    """Return the schemes `names` (None: all) compared; tuned dense is always among them.

    `trust` None takes what validation found for systems of this kind. ConfigError when there is nothing to compare: one
    device alone, or a system on which no dense scheme can be simulated.
    """
    if setting.cluster.world_size == 1:
        raise ConfigError(f"one device exchanges nothing, so there is nothing to compare on {setting.cluster.name} x1")
    trials, left_out = [], []
    wanted = sorted({*(schemes.names() if names is None else names), *TUNED})
    ranks = setting.cluster.world_size
    with doing(f"simulating {len(wanted)} schemes on {ranks} ranks"):
        for number, name in enumerate(wanted, 1):
            try:
                with doing(f"planning and simulating {name} on {ranks} ranks, {number} of {len(wanted)} schemes"):
                    found = setting.best(name)
                needed = setting.memory(found)
                if needed and not needed.fits:
                    raise ConfigError(needed.text)
                trials.append(found)
            except ConfigError as error:
                left_out.append((name, str(error)))
    # A scheme that leaves everything dense takes as long as tuned dense, which then is what to choose.
    trials.sort(key=lambda one: (float(f"{one.iteration_s:.4g}"), one.scheme not in TUNED, one.iteration_s, one.scheme))
    dense = next((one for one in trials if one.scheme in TUNED), None)
    if dense is None:
        why = next(text for name, text in left_out if name in TUNED)
        if why.startswith("does not fit"):
            raise ConfigError(f"{setting.profile.model} on cluster={setting.cluster.name} {why}")
        raise ConfigError(f"no dense scheme can be simulated on cluster={setting.cluster.name}: {why}")
    kind, network = setting.system.origin.kind, network_of(setting.cluster)
    sharded = setting.sharding is not None  # no such step was checked: the errors of others say nothing of it
    given, trust = trust, None if sharded else trust or trust_in(kind)
    places = ranges([one.iteration_s for one in trials], trust.mean if trust else 0.0)
    samples = setting.profile.batch_size * setting.cluster.world_size
    entries = [
        Entry(
            one,
            rank,
            samples / one.iteration_s,
            setting.profile.alone_s() / one.iteration_s,
            dense.iteration_s / one.iteration_s,
            None if sharded else given or trust_in_sending(kind, ways(one.plan), network),
            setting.steps,
        )
        for one, rank in zip(trials, places, strict=True)
    ]
    return Advice(setting, trust, tuple(entries), tuple(left_out))


def break_evens(advice: Advice) -> Iterator[tuple[str, BreakEven]]:
    """Yield scheme and break-even bandwidth, the fastest scheme first, without those that tuned dense is chosen from.

    Nothing where the system does not depend on the bandwidth. It takes a while: plans are made at many bandwidths.
    """
    names = [entry.scheme for entry in advice.entries]
    found = BreakEvens(advice.setting, [name for name in names if name in TUNED])
    if found.possible:
        # What chooses the best of all, dense among them, breaks even everywhere.
        yield from ((name, found.of(name)) for name in names if name not in TUNED and not schemes[name].chooses)


def ranges(seconds: Sequence[float], error: float) -> list[tuple[int, int]]:
    """Return for each time the best and the worst place it may have if all are off by up to `error`, relative.

    Two times whose intervals overlap are in no order.
    """
    return [
        (
            1 + sum(surely_less(other, one, error) for other in seconds),
            len(seconds) - sum(surely_less(one, other, error) for other in seconds),
        )
        for one in seconds
    ]


def surely_less(first_s: float, second_s: float, error: float) -> bool:
    """Return whether a first time is less than a second one even if both are off by up to `error`, relative."""
    return first_s * (1 + error) < second_s * (1 - error)
