"""How long schemes take to what dense training reaches: steps by the law of recorded runs times a simulated step."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ssfx.advice.ranking import Advice, Entry
from ssfx.schemes.search.auto_steps import Needed


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
    def worst_s(self) -> float | None:
        """Seconds of the steps that the worst recorded run needed, None where none holds."""
        return None if self.needed.worst is None else self._steps(self.needed.worst) * self.entry.iteration_s

    def _steps(self, share: float | None) -> float:
        return inf if share is None else self.train_steps * (1 + share)


def training_times(advice: Advice) -> list[TrainingTime]:
    """Return the schemes of an advice by the time of a training, fastest first; last those whose steps are not known.

    A scheme with long runs of its own, at this density, has their law; every other one that of its worst method.
    """
    times = [TrainingTime(entry, entry.needed, advice.setting.steps) for entry in advice.entries]
    return sorted(times, key=lambda one: (one.time_s, one.entry.iteration_s, one.entry.scheme))
