"""MergeComp Fig. 6: scaling factors for Mask R-CNN on COCO."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row

NAME = "mergecomp.fig6"
TITLE = "Scaling factors of Mask R-CNN"
COMMAND = f"ssfx figures {NAME}"

WHY = "Mask R-CNN is not simulated: how many regions it works on, and which tensors it trains, is not stated (MC-03)"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what the text prints; there is nothing of ours beside it."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="The paper's printed numbers; nothing was run here.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return that none of the claims was attempted."""
    return complete(NAME, [], COMMAND, reason=WHY)
