"""S2 Reducer Fig. 7 (appendix): time of sparse communication, block-sparse ResNet-50 on 1 Gb/s Ethernet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.s2reducer_panels import draw_communication, judge_communication
from experiments.common.validation.published_s2reducer import ratios
from ssfx.core.rows import Row

NAME = "s2reducer.fig7"
TITLE = "Time of sparse communication, block-sparse ResNet-50"
NEEDS = {"experiment": "s2_sparse", "calibration": bool}
COMMAND = "ssfx run experiment=s2_sparse"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write communication times, and what S2 Reducer leaves of the others' with the paper's marks."""
    return draw_communication(NAME, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the reductions of communication; those of GNMT are not attempted."""
    best = [replace(one, claim="s2reducer.headline.comm") for one in ratios() if one.claim == "s2reducer.fig3.d.comm"]
    found = judge_communication(NAME, rows, *best)
    return complete(NAME, found, COMMAND)
