"""How long a training takes with each scheme to be as good as dense training: steps by recorded runs, times a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ssfx.advice.ranking import Advice, Entry
from ssfx.advice.sending import steps_of
from ssfx.compressors import build
from ssfx.schemes.search.auto_steps import Needed, needed, scheme_laws

USUAL = (None, "none", "residual")
"""Memories that a scheme has where nobody asks for another."""


@dataclass(frozen=True)
class TrainingTime:
    """One scheme: the steps that it needs for what dense training reaches in `train_steps`, and the seconds of a step.

    `needed` has no share where no recorded run says how many steps it takes; then `steps` and `time_s` are infinite.
    """

    entry: Entry
    needed: Needed
    train_steps: int

    @property
    def steps(self) -> float:
        """Steps of this scheme."""
        return self._steps(self.needed.share)

    @property
    def time_s(self) -> float:
        """Seconds of these steps."""
        return self.steps * self.entry.iteration_s

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Seconds at both ends of the interval of steps, None without one."""
        if self.needed.interval is None:
            return None
        low, high = (self._steps(share) * self.entry.iteration_s for share in self.needed.interval)
        return low, high

    def _steps(self, share: float | None) -> float:
        return inf if share is None else self.train_steps * (1 + share)


def training_times(advice: Advice) -> list[TrainingTime]:
    """Return the schemes of an advice by the time of a training, fastest first; last those whose steps are not known.

    A scheme with long runs of its own, at this density, has their law; every other one that of its worst method.
    """
    steps = advice.setting.steps
    times = [TrainingTime(entry, _of_scheme(entry, steps) or steps_of(entry.trial.plan, steps), steps)
             for entry in advice.entries]  # fmt: skip
    return sorted(times, key=lambda one: (one.time_s, one.entry.iteration_s, one.entry.scheme))


def _of_scheme(entry: Entry, train_steps: int) -> Needed | None:
    """Return what the scheme's own long runs say; None where there are none, or where it is free to send otherwise."""
    density = entry.trial.options.get("density")
    for law in scheme_laws():
        spec = law["compressor"]
        same = law["scheme"] == entry.scheme and entry.compressors == (spec,) and law["memory"] in USUAL
        if same and (law["density"] == density or not build(spec).sparse):
            return needed(law, train_steps)
    return None
