"""The virtual executor: a plan's stages on virtual resources, with contention. Deterministic, and without torch."""

from ssfx.simulator.pricing.selection_stats import SelectionStats
from ssfx.simulator.pricing.task import STAGES, Task
from ssfx.simulator.result import Simulated, simulate
from ssfx.simulator.why import why

__all__ = ["STAGES", "SelectionStats", "Simulated", "Task", "simulate", "why"]
