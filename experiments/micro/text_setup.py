"""MiCRO section V-A: the cluster and the optimiser's settings, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, decays, judge_setup
from experiments.common.evaluation.judging import complete, says
from experiments.common.evaluation.pages import draw_claims
from experiments.common.evaluation.selection_example import DENSITY
from ssfx.compressors import build
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "micro.text.setup"
TITLE = "Cluster and settings of MiCRO"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting and on the two formulas."""
    key = "micro.setup"
    here = {
        f"{key}.gpus": lambda: float(cluster("micro").world_size),
        f"{key}.nodes": lambda: float(cluster("micro").nodes),
        f"{key}.gpus_per_node": lambda: float(cluster("micro").devices_per_node),
        f"{key}.decay_epoch": lambda: decays("resnet18_cifar10")[0],
    }
    host = "the host's memory and cores are no part of the description of a cluster here"
    why = {
        f"{key}.ram": host,
        f"{key}.cores": host,
        f"{key}.seeds": "how often the paper repeats its timings; a simulated step has no spread",
    }
    formulas = ("micro.def.density", "micro.setup.delta0")
    found = [one for one in judge_setup(NAME, here, why) if one.claim not in formulas]
    numel = model_work("resnet18_cifar10").numel
    k = build("topk").layout(numel, DENSITY).values
    found += [
        says("micro.def.density", abs(k / numel - DENSITY) < 1 / numel, f"k = {k:,} of {numel:,} elements",
             source="restated"),
        says("micro.setup.delta0", "partly", f"{threshold_for(k):.3g} for hard threshold, counted here",
             "the paper prints no rule, the authors' code has 1 / (2 sqrt k) for both; MiCRO takes that here only with "
             "delta0, because runs of 100 steps end before half a percent a step has corrected it", source="restated"),
    ]  # fmt: skip
    return complete(NAME, found, COMMAND)
