"""S2 Reducer Fig. 4: time of sparse communication, block-sparse ResNet-50 on 1 Gb/s Ethernet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.s2reducer_panels import draw_communication, judge_communication
from ssfx.core.rows import Row

NAME = "s2reducer.fig4"
TITLE = "Time of sparse communication, block-sparse ResNet-50"
NEEDS = {"experiment": "s2_sparse", "calibration": bool}
COMMAND = "ssfx run experiment=s2_sparse"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write communication times, and what S2 Reducer leaves of the others' with the paper's marks."""
    return draw_communication(NAME, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the reductions of communication; those of GNMT are not attempted."""
    return complete(NAME, judge_communication(NAME, rows), COMMAND)
