"""Where an iteration goes with MiCRO and other sparsifiers, from simulated rows: Figs. 1 and 6."""

from itertools import pairwise

from experiments.common.evaluation.artifacts import Answer, Judged
from experiments.common.evaluation.judging import held
from experiments.common.evaluation.micro_steps import (
    DENSITIES,
    LABELS,
    MODELS,
    WORKERS,
    iteration_s,
    panels,
    timed,
)
from experiments.common.evaluation.row_steps import SORTS_NOTHING, by_calibration, in_all, rows_by_calibration
from experiments.common.evaluation.selection_example import DENSITY, build_up_without_common_part, run
from experiments.common.evaluation.selection_times import EXPERIMENT, faster_by_threshold, sorting_grows
from experiments.common.evaluation.step_plots import Parts
from experiments.common.figures.auto import AT_DENSITY
from experiments.common.figures.figure import Figure
from experiments.common.validation.published_steps import Steps, stated
from ssfx.core.rows import Row

MODEL = "resnet18_cifar10"
WITH_SELECTION = {"experiment": ("micro_clusters", EXPERIMENT).__contains__}
"""Simulated steps, and what selecting takes on one core."""


# ---- Fig. 1: by number of workers ------------------------------------------------------------------------------------

ADDING = {"topk": "Top-k", "hardthr": "hard threshold"}
"""Sparsifiers of the example whose workers each select from all of the vector."""
CONSTANT, LARGE = 0.1, 0.2
"""Relative difference up to which a time is constant, and share of an iteration above which it is large."""


def _fig1(rows: list[Row]) -> dict[str, dict[str, dict[str, Row]]]:
    """Return stacked parts over the number of workers, for both kinds of sparsifier."""
    return {
        f"{part} {LABELS[name].replace(chr(10), ' ')}, density {DENSITY:g}": {
            f"{workers} workers": rows_by_calibration(rows, timed(name, MODEL, DENSITY, workers)) for workers in WORKERS
        }
        for part, name in (("(a)", "topk"), ("(b)", "hard_threshold"))
    }


def _fig1_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return density and build-up; traffic of a ring would rise without any build-up, too."""
    ratio, limit = run("topk").ratio, stated("micro.intro.buildup")[1]
    series = {name: [run(key, workers=n).ratio for n in WORKERS] for key, name in ADDING.items()}
    grows = all(a < b for one in series.values() for a, b in pairwise(one))
    return {
        "micro.intro.sort_cost": sorting_grows(rows),
        "micro.fig1.density": DENSITY,
        **{f"micro.fig1.n{workers}": workers for workers in WORKERS},
        "micro.fig1.hard_density": (run("hardthr").ratio > 1.1, f"{run('hardthr').ratio:.0f}x of what was set"),
        "micro.intro.buildup_grows": (
            grows,
            "; ".join(f"{name} {', '.join(f'{ratio:.1f}x' for ratio in one)}" for name, one in series.items()),
        ),
        "micro.intro.buildup": held(
            "micro.intro.buildup",
            ratio,
            reason=f"{ratio:.1f}x on made-up gradients that share half of their magnitude; "
            f"{build_up_without_common_part():.1f}x if they shared nothing, at most {limit:g}x",
        ),
    }


def _constant(steps: Steps) -> tuple[bool, str]:
    times = [steps.step(*timed("topk", MODEL, DENSITY, workers)) for workers in WORKERS]
    apart = max(one.sparsify_s for one in times) / min(one.sparsify_s for one in times) - 1
    share = times[-1].sparsify_s / times[-1].iteration_s
    said = f"differs by {100 * apart:.0f} %, {100 * share:.0f} % of the iteration on 16 workers"
    return apart < CONSTANT and share > LARGE, said


FIG1 = Figure(
    "micro.fig1",
    "Why sparsifiers do not scale",
    Parts(_fig1),
    Judged(
        _fig1_answers, orders={"micro.fig1.constant": _constant}, not_comparable={"micro.fig1.constant": SORTS_NOTHING}
    ),
    needs=WITH_SELECTION,
    command="ssfx run experiment=micro_clusters",
)

# ---- Fig. 6: by network and density; the data set does not matter to a simulated step --------------------------------

SORTING, THRESHOLDS = ("topk", "cltk"), ("hard_threshold", "micro")


def _every(steps: Steps) -> list[dict[str, float]]:
    names = (*SORTING, *THRESHOLDS)
    return [
        {name: iteration_s(steps, name, model, density) for name in names} for model in MODELS for density in DENSITIES
    ]


FIG6_ORDERS = {
    "micro.fig6.slow": in_all(
        "longer in {} of {} settings",
        lambda steps: (min(t[n] for n in SORTING) / max(t[n] for n in THRESHOLDS) - 1 for t in _every(steps)),
    ),
    "micro.fig6.best": in_all(
        "shortest in {} of {} settings",
        lambda steps: (min(t[n] for n in t if n != "micro") / t["micro"] - 1 for t in _every(steps)),
    ),
}
FIG6 = Figure(
    "micro.fig6",
    "Parts of an iteration of four sparsifiers",
    Parts(panels),
    Judged(
        lambda rows: ({"micro.fig6.parts": ""} if by_calibration(rows) else {}) | faster_by_threshold(rows),
        orders=FIG6_ORDERS,
        not_comparable=dict.fromkeys(FIG6_ORDERS, SORTS_NOTHING),
    ),
    needs=WITH_SELECTION,
    command="ssfx run experiment=micro_clusters",
    notes=(AT_DENSITY,),
)
