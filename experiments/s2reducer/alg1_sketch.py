"""S2 Reducer Algorithm 1: sketches add up, bitmaps unite exactly, and zeros may be skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, says
from experiments.common.evaluation.pages import draw_claims
from experiments.common.evaluation.sketch_example import ELEMENTS, linearity, wrong_blocks, zeros_skipped
from ssfx.collectives import collectives
from ssfx.core.rows import Row

NAME = "s2reducer.alg1"
TITLE = "What the sketch and the bitmap keep exactly"
COMMAND = f"ssfx figures {NAME}"

ROUNDING = 1e-9
"""Sums in another order differ by this much at most."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what was tried for every statement."""
    origin = (
        "Computed by ssfx: the hash functions of its collective s2_sketch on small made-up vectors; no training run."
    )
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every property."""
    sum_error, zero_error, wrong = linearity(), zeros_skipped(), wrong_blocks()
    sketch = collectives.build("s2_sketch")
    numel, kept = 64 * ELEMENTS, 2 * ELEMENTS
    _, sent, cols = sketch.shape(numel, kept)  # type: ignore[attr-defined]
    ratio = cols * sketch.options.rows / (sent * sketch.options.block)
    return complete(
        NAME,
        [
            says("s2reducer.alg.linear", sum_error < ROUNDING, f"largest difference {sum_error:.1g}"),
            held("s2reducer.alg.bitmap", wrong, tolerance=0.0),
            says("s2reducer.alg.sketch_equal", zero_error < ROUNDING, f"largest difference {zero_error:.1g}"),
            held("s2reducer.alg.ratio", ratio, tolerance=0.0),
        ],
        COMMAND,
    )
