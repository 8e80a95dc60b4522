"""S2 Reducer Fig. 4: time of sparse communication, block-sparse ResNet-50 on 1 Gb/s Ethernet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.judging import absent, complete
from ssfx.evaluation.row_steps import judge_predictions, prediction_bars
from ssfx.evaluation.s2reducer_panels import COLOURS, GNMT, bars
from ssfx.evaluation.step_plots import Bars, draw_panels
from ssfx.results.rows import Row
from ssfx.validation.published_s2reducer import ratios
from ssfx.validation.published_steps import Prediction, claims

NAME = "s2reducer.fig4"
TITLE = "Time of sparse communication, block-sparse ResNet-50"
NEEDS = {"experiment": "s2_sparse", "calibration": bool}
COMMAND = "ssfx run experiment=s2_sparse"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write communication times, and what S2 Reducer leaves of the others' with the paper's marks."""
    left = [one for one in ratios() if "communication" in one.panel]
    names = {f"of {name}": colour for name, colour in COLOURS.items()}
    panels = [
        Bars("block-sparse ResNet-50", bars(rows, lambda step: step.comm_s), "communication (s)"),
        prediction_bars(rows, left, "what S2 Reducer leaves of it", names),
    ]
    return draw_panels(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the reductions of communication; those of GNMT are not attempted."""
    found = judge_predictions(rows, predictions())
    found += [absent(claim, GNMT) for claim in own_claims() if "gnmt" in claim or claim == "s2reducer.fig3.f.comm"]
    return complete(NAME, found, COMMAND)


def predictions() -> list[Prediction]:
    """Return the predictions for this figure's claims."""
    return [one for one in ratios() if one.claim in own_claims()]


def own_claims() -> list[str]:
    """Return the ids of this figure's claims."""
    return [name for name, claim in claims().items() if claim.artifact == NAME]
