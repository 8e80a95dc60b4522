"""S2 Reducer Fig. 3: speed of training with five exchanges of sparse gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete
from experiments.common.evaluation.row_steps import judge_predictions, prediction_bars
from experiments.common.evaluation.s2reducer_panels import COLOURS, GNMT, bars
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.validation.published_s2reducer import ratios
from ssfx.core.rows import Row

NAME = "s2reducer.fig3"
TITLE = "Speed of training, block-sparse ResNet-50"
NEEDS = {"experiment": "s2_sparse", "calibration": bool}
COMMAND = "ssfx run experiment=s2_sparse"

QUALITY = "asks for training to the end on the paper's data; the quality of sketches at a small scale is in Fig. 8"
WHY = {
    "s2reducer.headline.speedup": GNMT,
    "s2reducer.headline.accuracy": QUALITY,
    "s2reducer.fig3.a.lstm.sparcml": "the sparsity of the LSTM's embedding gradient depends on data that are not here",
    "s2reducer.fig3.b.gnmt8.allgather": GNMT,
    "s2reducer.fig3.c.gnmt16.omni": GNMT,
    "s2reducer.fig3.f.gnmt8.omni": GNMT,
    "s2reducer.fig3.c.epochs_s2": GNMT,
    "s2reducer.fig3.c.epochs_others": GNMT,
    "s2reducer.fig3.parity": QUALITY,
    "s2reducer.fig3.d.accuracy": QUALITY,
}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write iteration times of panel (d), and the speedups that the text prints of it."""
    gains = [one for one in ratios() if "gain" in one.panel]
    names = {f"over {name}": colour for name, colour in COLOURS.items()}
    panels = [
        Bars("(d) block-sparse ResNet-50, 1 Gb/s", bars(rows, lambda step: step.iteration_s), "iteration (s)"),
        prediction_bars(rows, gains, "(d) gain of S2 Reducer", names),
    ]
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the speedups of panel (d), and why the others were not attempted."""
    own = [one for one in ratios() if one.claim.startswith(f"{NAME}.") and "gain" in one.panel]
    found = [*judge_predictions(rows, own), *(absent(claim, why) for claim, why in WHY.items())]
    return complete(NAME, found, COMMAND)
