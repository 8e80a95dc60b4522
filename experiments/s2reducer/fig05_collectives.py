"""S2 Reducer Fig. 5: time of all-reduce and all-gather on 16 GPUs by message size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.s2reducer_collectives import draw_collectives
from ssfx.core.rows import Row

NAME = "s2reducer.fig5"
TITLE = "All-reduce and all-gather on 16 GPUs"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the time of both collectives over message size, and the ratio that the text states as an open mark."""
    return draw_collectives(NAME, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this figure, whose caption is merged with that of Fig. 6."""
    return complete(NAME, [], COMMAND)
