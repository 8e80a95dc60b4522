"""MiCRO Fig. 4: accuracy of four sparsifiers, over steps; over time with simulated steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import experiment
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, Gap, Wanted, judged_order, no_row, tasks
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.micro_runs import (
    COLOURS,
    DENSITY,
    GROUP,
    METHODS,
    judged_times,
    method,
    runs,
    steps_to_common,
)
from experiments.common.evaluation.micro_steps import MODELS, iteration_s
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.evaluation.row_steps import NoRow, by_calibration
from experiments.common.figures.auto import AUTO, COLOUR
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "micro.fig4"
TITLE = "Accuracy of four sparsifiers"
NEEDS = {"experiment": (LONG, "micro_clusters").__contains__}
COMMAND = LONG_COMMAND

ORDERS = {
    f"{NAME}.fastest": [("MiCRO", name) for name in COLOURS if name != "MiCRO"],
    f"{NAME}.slowest": [(name, "CLT-k") for name in COLOURS if name != "CLT-k"],
    f"{NAME}.hard": [("MiCRO", "hard threshold")],
}
"""Of two sparsifiers the one that the paper has first at its accuracy."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, and at the end over that of MiCRO; the paper's is over time on its own GPUs."""
    found = tasks([row for row in rows if row.case.experiment == LONG], shown)
    own = [one for one in found if set(METHODS.values()) & set(one.methods)]
    colours = {**COLOURS, AUTO: COLOUR}
    return draw_quality(NAME, TITLE, [Panel(one.model, one, colours, "MiCRO") for one in own[:1]], out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether all end alike and whether Top-k leads CLT-k, and who is there first by simulated steps."""
    sweep = experiment("micro_clusters")["experiment"]["sweep"]
    found = [
        held("micro.fig4.settings", 2 * len(sweep["workload"]) * len(sweep["density"]), tolerance=0.0,
             reason="as many settings with both data sets; a simulated step does not depend on the data set"),
    ]  # fmt: skip
    own = runs(rows)
    missing = [name for name in COLOURS if name not in own]
    if missing:
        found += [no_row(f"{NAME}.{claim}", missing) for claim in ("accuracy", "topk_cltk")]
        found += [no_row(claim, missing) for claim in ORDERS]
        return complete(NAME, found, COMMAND, cost=COST)
    (task,) = tasks([row for row in rows if row.case.experiment == LONG], shown)[:1]
    pairs: list[tuple[str, Gap, Wanted]] = [
        (f"{name} over MiCRO", task.gap(name, "MiCRO"), "equal") for name in COLOURS if name != "MiCRO"
    ]
    found.append(judged_order(f"{NAME}.accuracy", pairs, task.words))
    lead = task.gap("Top-k", "CLT-k")
    found.append(
        judged_order(f"{NAME}.topk_cltk", [("Top-k over CLT-k at equal steps", lead, "not below")], task.words)
    )
    counts = steps_to_common(own)
    for calibration, steps in by_calibration(rows).items():
        try:
            times = [_times(steps, model, counts) for model in MODELS]
        except NoRow:
            continue
        for claim, order in ORDERS.items():
            found.append(judged_times(claim, [(t[a], t[b]) for t in times for a, b in order], calibration))
    return complete(NAME, found, COMMAND, cost=COST)


def shown(row: Row) -> str:
    """Return the sparsifier of a row on as many workers, or scheme=auto."""
    if row.case.world_size != GROUP:
        return ""
    return AUTO if row.case.scheme == AUTO else method(row)


def _times(steps: Steps, model: str, counts: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return seconds to the common accuracy by sparsifier, one of the paper's networks lent its step."""
    names = {label: scheme for scheme, label in METHODS.items()}
    return {
        name: [count * iteration_s(steps, names[name], model, DENSITY) for count in own] for name, own in counts.items()
    }
