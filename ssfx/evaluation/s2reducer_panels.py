"""The exchanges of the S2 Reducer paper as its figures show them, from simulated rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssfx.evaluation.row_steps import values_by_calibration
from ssfx.evaluation.step_plots import Bar
from ssfx.results.rows import Row
from ssfx.validation.published_s2reducer import timed
from ssfx.validation.published_steps import Step

LABELS = {"s2reducer": "S2 Reducer", "allgather": "AllGather", "sparcml": "SparCML", "omnireduce": "OmniReduce"}
COLOURS = {"s2reducer": "#0072b2", "allgather": "#d55e00", "sparcml": "#8e7cc3", "omnireduce": "#787878"}
GNMT = "GNMT is not simulated: the sizes that the paper prints fit no definition (S2-05)"


def bars(rows: Sequence[Row], part: Callable[[Step], float]) -> list[Bar]:
    """Return a bar for each exchange: a part of its step, from the rows of each calibration."""
    return [
        Bar(label, COLOURS[name], values_by_calibration(rows, lambda steps, name=name: part(steps.step(*timed(name)))))  # type: ignore[misc]
        for name, label in LABELS.items()
    ]
