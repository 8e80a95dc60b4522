"""MiCRO Fig. 4: accuracy of four sparsifiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import experiment
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.judging import absent, complete, held
from experiments.common.evaluation.micro_runs import COLOURS, METHODS, method, runs
from experiments.common.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from experiments.common.figures.auto import AUTO, COLOUR, LABEL
from ssfx.core.rows import Row

NAME = "micro.fig4"
TITLE = "Accuracy of four sparsifiers"
NEEDS = {"experiment": ("micro_quality", LONG).__contains__, "calibration": ""}
COMMAND = "ssfx run experiment=micro_quality"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps with the range of the seeds; the paper's is over time on its own GPUs."""
    return draw_curves(NAME, shown(rows), {**COLOURS, LABEL: COLOUR}, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether all end alike and whether Top-k leads CLT-k; time on the paper's GPUs is not known."""
    sweep = experiment("micro_clusters")["experiment"]["sweep"]
    found = [
        held("micro.fig4.settings", 2 * len(sweep["workload"]) * len(sweep["density"]), tolerance=0.0,
             reason="as many settings with both data sets; a simulated step does not depend on the data set"),
    ]  # fmt: skip
    for claim in ("fastest", "slowest", "hard"):
        found.append(
            absent(f"{NAME}.{claim}", "time to accuracy on the paper's GPUs: its steps are simulated in Fig. 6")
        )
    for methods in shown(rows).values():
        own = {name: values(runs, "top1") for name, runs in methods.items() if name != LABEL}
        if {"Top-k", "CLT-k", "MiCRO"} <= set(own):
            pairs = [
                (f"{name} over MiCRO", *compared(own[name], own["MiCRO"]), "equal") for name in own if name != "MiCRO"
            ]
            found.append(judged_order(f"{NAME}.accuracy", pairs))
            word, said = compared(own["Top-k"], own["CLT-k"])
            wanted = "equal" if word == "equal" else "above"
            found.append(judged_order(f"{NAME}.topk_cltk", [("Top-k over CLT-k at equal steps", word, said, wanted)]))
            break
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def shown(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> method -> rows on as many workers; beside the paper's sparsifiers scheme=auto."""
    own = runs([row for row in rows if row.case.scheme != AUTO], METHODS.values())
    auto = [row for row in rows if row.case.scheme == AUTO and row.case.model in {other.case.model for other in own}]
    return grouped([*own, *auto], lambda row: LABEL if row.case.scheme == AUTO else method(row))
