"""MiCRO Fig. 8: threshold and error over training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, no_row
from experiments.common.evaluation.judging import complete, says
from experiments.common.evaluation.micro_runs import ONE, follows, runs, scaled
from experiments.common.evaluation.quality_curves import origin
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, caption_text, save, style
from ssfx.core.rows import Row

NAME = "micro.fig8"
TITLE = "Threshold and scaled error of MiCRO"
NEEDS = {"experiment": LONG, "calibration": ""}
COMMAND = LONG_COMMAND


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the threshold over steps beside the error, rescaled by the ratio of their sums as in the paper."""
    own = chosen(rows)
    if not own:
        return []
    import matplotlib.pyplot as plt

    table = []
    with style():
        figure, axis = plt.subplots(figsize=(1.4 * COLUMN_IN, 2.5), layout="constrained")
        for seed, row in enumerate(own):
            steps, threshold, error = scaled(row)
            axis.plot(steps, threshold, color="#5b2a86", linewidth=1.1, label="threshold" if seed == 0 else None)
            axis.plot(steps, error, color="#d55e00", linewidth=0.9, label="error, rescaled" if seed == 0 else None)
            table += [
                {"seed": row.case.seed, "step": step, "threshold": a, "scaled_error": b}
                for step, a, b in zip(steps, threshold, error, strict=True)
            ]
        axis.set_xlabel("step")
        axis.set_ylabel("threshold")
        axis.set_title(own[0].case.model, loc="left", fontweight="bold")
        axis.legend()
        axis.grid()
        said = caption_text([origin(own, "a line for each of")], figure.get_figwidth())
        figure.supxlabel(said, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, own, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return the correlation of the ranks of threshold and error."""
    found = []
    if own := chosen(rows):
        scale = "the rescaling of the figure is done as the text says: sum of thresholds over sum of errors"
        found.append(says("micro.fig8.scale", "agrees", "applied in the figure", scale, source="restated"))
        ranks = [follows(row) for row in own]
        text = f"rank correlation {min(ranks):.2f} to {max(ranks):.2f}"
        found.append(says("micro.fig8.track", min(ranks) > 0, text, ONE, source="measured"))
    else:
        found = [no_row(f"{NAME}.{claim}", ["MiCRO"]) for claim in ("scale", "track")]
    return complete(NAME, found, COMMAND, cost=COST)


def chosen(rows: list[Row]) -> list[Row]:
    """Return the long runs of MiCRO that recorded thresholds and errors."""
    return [row for row in runs(rows).get("MiCRO", ()) if scaled(row)[0]]
