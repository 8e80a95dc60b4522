"""How long schemes take to what dense training reaches: steps by the law of recorded runs times a simulated step."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ssfx.advice.ranking import Advice, Entry
from ssfx.schemes.search.extra_steps import ExtraSteps


@dataclass(frozen=True)
class TrainingTime:
    """One scheme: the steps that it needs for what dense training reaches in `train_steps`, and the seconds of a step.

    `needed` has no share where no recorded run says how many steps it takes; then `steps` and `time_s` are infinite.
    """

    entry: Entry
    needed: ExtraSteps
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
    def worst_s(self) -> float | None:
        """Seconds of the steps at the upper end of what it needs, None where that is unknown."""
        return None if self.needed.high is None else self._steps(self.needed.high) * self.entry.iteration_s

    def _steps(self, share: float | None) -> float:
        return inf if share is None else self.train_steps * (1 + share)


def training_times(advice: Advice) -> list[TrainingTime]:
    """Return the schemes of an advice by the time of a training, fastest first; last those whose steps are not known.

    A scheme needs what its worst method needs.
    """
    times = [TrainingTime(entry, entry.needed, advice.setting.steps) for entry in advice.entries]
    return sorted(times, key=lambda one: (one.time_s, one.entry.iteration_s, one.entry.scheme))
