"""S2 Reducer Fig. 3: speed of training with five exchanges of sparse gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, Gap, Wanted, judged_order, no_row, task_of, tasks
from experiments.common.evaluation.judging import absent, complete
from experiments.common.evaluation.row_steps import judge_predictions, prediction_bars
from experiments.common.evaluation.s2reducer_panels import COLOURS, GNMT, LOSSLESS, RATIO, bars, sketched
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.validation.published_s2reducer import ratios
from ssfx.core.rows import Row

NAME = "s2reducer.fig3"
TITLE = "Speed of training, block-sparse ResNet-50"
NEEDS = {"experiment": ("s2_sparse", LONG).__contains__}
COMMAND = "ssfx run experiment=s2_sparse"
NOTES = (
    "Accuracy: S2 Reducer against an all-gather of the same blocks, which loses nothing, in long runs: a VGG stands "
    f"for ResNet-50, a small LSTM for the LSTM ({LONG_COMMAND}).",
)

SKETCH = f"lambda = {RATIO:g}"
TASKS = {"vgg": "ResNet-50", "lstm": "LSTM and GNMT-8"}
"""Our networks by a word in their names, and the paper's that they stand for."""
PARITY = {"s2reducer.fig3.d.accuracy": ("vgg",), "s2reducer.fig3.parity": ("lstm",),
          "s2reducer.headline.accuracy": ("vgg", "lstm")}  # fmt: skip
"""Claims of equal quality, and our networks that speak to them."""
WHY = {
    "s2reducer.headline.speedup": GNMT,
    "s2reducer.fig3.a.lstm.sparcml": "the sparsity of the LSTM's embedding gradient depends on data that are not here",
    "s2reducer.fig3.b.gnmt8.allgather": GNMT,
    "s2reducer.fig3.c.gnmt16.omni": GNMT,
    "s2reducer.fig3.f.gnmt8.omni": GNMT,
    "s2reducer.fig3.c.epochs_s2": GNMT,
    "s2reducer.fig3.c.epochs_others": GNMT,
}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write iteration times of panel (d), and the speedups that the text prints of it."""
    rows = [row for row in rows if row.case.calibration]
    gains = [one for one in ratios() if "gain" in one.panel]
    names = {f"over {name}": colour for name, colour in COLOURS.items()}
    panels = [
        Bars("(d) block-sparse ResNet-50, 1 Gb/s", bars(rows, lambda step: step.iteration_s), "iteration (s)"),
        prediction_bars(rows, gains, "(d) gain of S2 Reducer", names),
    ]
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the speedups of panel (d), on equal quality, and why the others were not attempted."""
    own = [one for one in ratios() if one.claim.startswith(f"{NAME}.") and "gain" in one.panel]
    found = [*judge_predictions(rows, own), *(absent(claim, why) for claim, why in WHY.items())]
    return complete(NAME, [*found, *(_parity(claim, words, rows) for claim, words in PARITY.items())], COMMAND)


def _parity(claim: str, words: Sequence[str], rows: list[Row]) -> Verdict:
    """Return whether the sketch ends where lossless sums do, on every network that is asked for."""
    every = tasks([row for row in rows if row.case.experiment == LONG], sketched)
    known = [task for word in words if (task := task_of(every, word)) and task.knows(SKETCH, LOSSLESS)]
    missing = [f"S2 Reducer and {LOSSLESS} in place of {TASKS[word]}" for word in words
               if not any(word in task.model for task in known)]  # fmt: skip
    if not known:
        return no_row(claim, missing)
    pairs: list[tuple[str, Gap, Wanted]] = [
        (f"{task.model}: S2 Reducer over lossless", task.gap(SKETCH, LOSSLESS), "not below") for task in known
    ]
    return replace(judged_order(claim, pairs, "; ".join(task.words for task in known), missing), cost=COST)
