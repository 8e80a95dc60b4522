"""MiCRO Fig. 1: parts of an iteration of Top-k and density of hard threshold, by number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete, held, says, stated
from experiments.common.evaluation.micro_steps import LABELS, WORKERS, timed
from experiments.common.evaluation.operators import bytes_per_element
from experiments.common.evaluation.row_steps import Rule, judge_orders, rows_by_calibration
from experiments.common.evaluation.selection_example import DENSITY, build_up_without_common_part, run
from experiments.common.evaluation.step_plots import draw_parts
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "micro.fig1"
TITLE = "Why sparsifiers do not scale"
CLAIMS = (NAME,)
NEEDS = {"experiment": "micro_clusters", "calibration": bool}
COMMAND = "ssfx run experiment=micro_clusters"

MODEL = "resnet18_cifar10"
CONSTANT, LARGE = 0.1, 0.2
"""Relative difference up to which a time is constant, and share of an iteration above which it is large."""
SORTS_NOTHING = "the claim is about sorting; our Top-k finds its threshold by histogram and sorts nothing"
MOVED = f"{bytes_per_element('topk'):.0f} bytes moved per element, whatever k"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write stacked parts over the number of workers, for both kinds of sparsifier."""
    panels = {
        f"{part} {LABELS[name].replace(chr(10), ' ')}, density {DENSITY:g}": {
            f"{workers} workers": rows_by_calibration(rows, timed(name, MODEL, DENSITY, workers)) for workers in WORKERS
        }
        for part, name in (("(a)", "topk"), ("(b)", "hard_threshold"))
    }
    return draw_parts(NAME, panels, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on selection time, density and build-up."""
    tried = run("topk")
    limit = stated("micro.intro.buildup")[1]
    found = [
        absent("micro.intro.sort_cost", SORTS_NOTHING, "not comparable", MOVED),
        held("micro.fig1.density", DENSITY),
        *(held(f"micro.fig1.n{workers}", workers, tolerance=0.0) for workers in WORKERS),
        says("micro.fig1.hard_density", run("hardthr").ratio > 1.1, f"{run('hardthr').ratio:.0f}x of what was set",
             "on made-up gradients with error feedback; of real ones see Fig. 5"),
        held("micro.intro.buildup", tried.ratio, reason=f"{tried.ratio:.1f}x on made-up gradients that share half of "
             f"their magnitude; {build_up_without_common_part():.1f}x if they shared nothing, at most {limit:g}x"),
    ]  # fmt: skip
    return complete(NAME, [*found, *judge_orders(rows, ORDERS)], COMMAND)


def _constant(steps: Steps) -> tuple[bool, str]:
    times = [steps.step(*timed("topk", MODEL, DENSITY, workers)) for workers in WORKERS]
    apart = max(one.sparsify_s for one in times) / min(one.sparsify_s for one in times) - 1
    share = times[-1].sparsify_s / times[-1].iteration_s
    return (
        apart < CONSTANT and share > LARGE,
        f"differs by {100 * apart:.0f} %, {100 * share:.0f} % of the iteration on 16 workers",
    )


def _grows(steps: Steps) -> tuple[bool, str]:
    times = [steps.step(*timed("topk", MODEL, DENSITY, workers)).comm_s for workers in WORKERS]
    return times == sorted(times), ", ".join(f"{1e3 * seconds:.2f} ms" for seconds in times)


ORDERS: dict[str, Rule] = {"micro.fig1.constant": _constant, "micro.intro.buildup_grows": _grows}
