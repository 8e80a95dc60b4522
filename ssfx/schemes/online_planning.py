"""What the runtime does beside executing a plan: it observes, measures, tries and watches, as a scheme's options say.

The options of each scheme state it in their method `online`; nothing outside this package reads them by name.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ssfx.planning.costs import Costs
from ssfx.planning.rounds import Rounds

Measured = tuple[dict[str, float], bool]
"""The compressors whose times a plan may rest on, each at a density, and whether anything adds up on the way."""


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """When a plan is made anew while a model trains."""

    window_steps: int
    """Of so many steps the median time counts."""
    time_change: float
    """By more than this share steps have to take longer, or less long, than at first; 0: the plan stays."""


@dataclass(frozen=True, kw_only=True)
class OnlinePlanning:
    """How a scheme's plan comes about, and changes, while a model trains."""

    compressor: str | None = None
    """The spec of what every message is compressed with; None: dense, or the scheme chooses."""
    density: float | None = None
    """The kept fraction that was asked for."""
    dense_steps: int = 0
    """In so many steps everything is sent dense; the scheme's plan follows."""
    density_warmup_steps: int = 0
    """In so many steps the density falls from dense to its value."""
    observed_steps: int = 1
    """Steps in which the arrival of gradients is observed before the plan is made from it; 0: it never is."""
    to_measure: Callable[[Costs], Measured] | None = None
    """What a scheme that chooses compressors wants measured, on the ranks of the costs; None: its compressor alone."""
    trial_steps: int = 0
    """Steps that are timed with each plan worth trying; 0: the plan that is predicted to be fastest is used."""
    run_steps: int = 0
    """Steps of the whole run: its rest may be too short for a trial; 0: not known."""
    limits: PlanLimits | None = None
    """What a plan is held to; None: it stays."""
    memory: str | None = None
    """The memory where none is given; None: residual where errors may be fed back."""
    rounds: Rounds | None = None
    """After which steps weights are exchanged; None: gradients are, after every one."""

    def compressors(self, costs: Costs) -> tuple[str, ...]:
        """Return the specs of all compressors that plans may use on the ranks of `costs`."""
        if self.compressor is not None:
            return (self.compressor,)
        return tuple(self.to_measure(costs)[0]) if self.to_measure is not None else ()
