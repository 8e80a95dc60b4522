"""ACP-SGD Fig. 11: iteration time by batch size (ResNet-152) and by rank (BERT-Large)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import COLOURS, NOTE, iteration_s, line
from experiments.common.evaluation.judging import complete, held, stated
from experiments.common.evaluation.row_steps import judge_predictions, prediction_bars
from experiments.common.evaluation.step_plots import Lines, draw_panels
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import SMALLEST_BATCH, Setup, ratios
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "acpsgd.fig11"
TITLE = "Iteration time by batch size and by rank"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_sweeps", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_sweeps"
NOTES = (f"{NOTE} It chooses ranks of its own, so that its line in (b) is level.",)

METHODS = ("ssgd", "powersgd-star", "acpsgd")
SHOWN = (*METHODS, AUTO)
BATCHES = (8, 16, 24, 32)
RANKS = (32, 64, 128, 256)
GAIN = {"over": COLOURS["acpsgd"]}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write panel (a) over batch size and panel (b) over rank; the paper prints ratios only."""
    batch = [
        line(rows, name, [(b, seconds(name, Setup("ResNet-152", batch_size=b))) for b in BATCHES]) for name in SHOWN
    ]
    rank = [line(rows, name, [(r, seconds(name, Setup("BERT-Large", rank=r))) for r in RANKS]) for name in SHOWN]
    own = list(ratios())
    return draw_panels(
        NAME,
        [
            Lines("(a) ResNet-152 by batch size", batch, "batch size per GPU", "iteration (s)", log_x=True),
            Lines("(b) BERT-Large by rank", rank, "rank", "iteration (s)", log_x=True),
            prediction_bars(
                rows, [one for one in own if one.panel == "Fig. 11a gain of ACP-SGD"], "(a) gain of ACP-SGD", GAIN
            ),
            prediction_bars(
                rows, [one for one in own if one.panel == "Fig. 11b gain of ACP-SGD"], "(b) gain of ACP-SGD", GAIN
            ),
        ],
        rows,
        out,
    )


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios of the text and on two settings."""
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig11")]
    units = max(spec.shape[-1] for spec in model_work("bert_large_pretraining").tensors if "position" in spec.name)
    impossible = f"swept from {SMALLEST_BATCH}: gains of 2.4x to 3.7x by doubling a batch are impossible (ACP-01)"
    computed = [
        held("acpsgd.fig11a.range", (float(min(BATCHES)), stated("acpsgd.fig11a.range")[1]), reason=impossible),
        held("acpsgd.fig11b.hidden", float(units), tolerance=0.0),
    ]
    return complete(NAME, [*computed, *judge_predictions(rows, own)], COMMAND)


def seconds(name: str, setup: Setup) -> Callable[[Steps], float]:
    """Return how the iteration time follows from steps."""

    def value(steps: Steps) -> float:
        return iteration_s(steps, name, setup)

    return value
