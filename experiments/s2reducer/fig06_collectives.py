"""S2 Reducer Fig. 6: time of all-reduce and all-gather on 16 GPUs by message size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, number
from experiments.common.evaluation.s2reducer_collectives import SIZES_MB, draw_collectives, ratio
from ssfx.core.rows import Row

NAME = "s2reducer.fig6"
TITLE = "All-reduce and all-gather on 16 GPUs"
COMMAND = f"ssfx figures {NAME}"

GPUS = 16


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the time of both collectives over message size, and the ratio that the text states as an open mark."""
    return draw_collectives(NAME, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratio for large messages, from nominal times: published ones were fitted to it."""
    limit = number("s2reducer.appB1.size")
    large = [ratio(mb) for mb in SIZES_MB if mb > limit]
    bound = f"ring formulas give at most P/2 = {GPUS // 2}, whatever the network (S2-04)"
    size = held("s2reducer.appB1.size", limit, reason="taken over as the size from which the ratio is read")
    found = [
        held(
            "s2reducer.appB1.ratio",
            (min(large), max(large)),
            tolerance=0.0,
            reason=bound,
            source="simulated",
            calibration="nominal",
        ),
        size,
    ]
    return complete(NAME, found, COMMAND)
