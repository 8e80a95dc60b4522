"""The exchanges of the S2 Reducer paper as its figures show them, from simulated rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent
from experiments.common.evaluation.row_steps import judge_predictions, prediction_bars, values_by_calibration
from experiments.common.evaluation.step_plots import Bar, Bars
from experiments.common.validation.published_s2reducer import ratios, timed
from experiments.common.validation.published_steps import PaperStep, Prediction, number
from ssfx.core.rows import Row

LABELS = {"s2reducer": "S2 Reducer", "allgather": "AllGather", "sparcml": "SparCML", "omnireduce": "OmniReduce"}
COLOURS = {"s2reducer": "#0072b2", "allgather": "#d55e00", "sparcml": "#8e7cc3", "omnireduce": "#787878"}
LOSSLESS = "AllGather"
"""Of the same blocks: what a sketch estimates, it sums exactly."""
RATIO = 0.5
"""Lambda of scheme s2reducer, which a case does not write down."""
GNMT = "GNMT is not simulated: the sizes that the paper prints fit no definition (S2-05)"


def bars(rows: Sequence[Row], part: Callable[[PaperStep], float]) -> list[Bar]:
    """Return a bar for each exchange: a part of its step, from the rows of each calibration."""
    return [
        Bar(label, COLOURS[name], values_by_calibration(rows, lambda steps, name=name: part(steps.step(*timed(name)))))  # type: ignore[misc]
        for name, label in LABELS.items()
    ]


def sketched(row: Row) -> str:
    """Return how a run at the paper's rate summed its blocks: "lambda = 0.5", LOSSLESS, or "" for other runs."""
    case = row.case
    options = dict(case.scheme_options)
    ratio = float(options.pop("ratio", RATIO))
    if case.density != number("s2reducer.setup.rate") or options:
        return ""
    if case.scheme == "s2reducer":
        return f"lambda = {ratio:g}"
    return LOSSLESS if (case.scheme, case.compressor) == ("fused_all", "block_topk") else ""


def communication_panels(rows: Sequence[Row]) -> list[Bars]:
    """Return communication times, and what S2 Reducer leaves of the others' with the paper's marks."""
    left = [one for one in ratios() if "communication" in one.panel]
    names = {f"of {name}": colour for name, colour in COLOURS.items()}
    return [
        Bars("block-sparse ResNet-50", bars(rows, lambda step: step.comm_s), "communication (s)"),
        prediction_bars(rows, left, "what S2 Reducer leaves of it", names),
    ]


def judge_communication(artifact: str, rows: Sequence[Row], *more: Prediction) -> list[Verdict]:
    """Return verdicts on a figure's reductions of communication and on `more`; those of GNMT are not attempted."""
    own = [claim.id for claim in claims_of(artifact)]
    found = judge_predictions(rows, [*(one for one in ratios() if one.claim in own), *more])
    return found + [absent(claim, GNMT) for claim in own if "gnmt" in claim or claim == "s2reducer.fig3.f.comm"]
