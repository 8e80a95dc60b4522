"""SSFusion Table V (Experiment 8): the share of profiling in the time of training, measured here and simulated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import LONG
from experiments.common.figures.tables import draw_table
from ssfx.config.compose import compose
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import FEWEST_STEPS
from ssfx.lab.config.epochs import with_steps
from ssfx.lab.results.comparisons import metric
from ssfx.schemes import schemes

NAME = "ssfusion.table5"
TITLE = "Table V: profiling time, share of the time of training"
NEEDS = {"experiment": ("profiling_overhead", LONG).__contains__}
COMMAND = "ssfx run experiment=profiling_overhead cluster=64gpu"
COST = "seconds on one core"

SCHEME, DENSE = "ssfusion_oi", "ddp"
MODELS = {
    "resnet152": ("ResNet-152", "resnet152_imagenet"),
    "vit_large": ("ViT-large", "vit_large_imagenet"),
    "bert_large": ("BERT-large", "bert_large_squad"),
    "gpt2_large": ("GPT2-large", "gpt2_large_wikitext103"),
}
"""Models of the paper with its name of them, and the workload that says how long the authors' scripts train."""
NEGLIGIBLE = 0.1
"""Percent: what Table V stays below."""
SAID = (
    "The paper does not say how long it trained: ours is for the epochs of the authors' scripts, and counts the "
    "observed steps without the planning, which was not simulated."
)
NOTES = (
    "Measured: the steps that are observed and the planning (costs of exchange and compressor are measured, then the "
    f"plan is made), over all steps of a long run ({LONG_COMMAND}); of a longer one the share is smaller.",
    f"Simulated: {SAID[0].lower()}{SAID[1:]} Observed steps exchange as dense DDP does.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table: a line per model, the paper's share beside ours, with steps and seconds."""
    table = lines(rows)
    if not table:
        return []
    columns = {
        "model": "model", "paper": "paper\npercent", "ours": "ours\npercent", "observed": "observed\nsteps",
        "steps": "all\nsteps", "profile_s": "observed\nseconds", "plan_s": "planning\nseconds", "source": "source",
    }  # fmt: skip
    origin = "Simulated: 64 A100, nominal times, epochs of the authors' scripts. Measured: small models, four ranks."
    return draw_table(NAME, TITLE, columns, table, out, origin=origin, used=rows)


def finding(rows: list[Row]) -> str:
    """Return the range of the shares, simulated and measured."""
    parts = []
    for kind in ("simulated", "measured"):
        found = [line for line in lines(rows) if line["source"].startswith(kind)]
        if found:
            shares = [float(line["ours"]) for line in found]
            steps = sorted({line["steps"] for line in found})
            run = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
            parts.append(f"{min(shares):.2g} to {max(shares):.2g} % of runs of {run} steps ({kind})")
    return "observing and planning take " + ("; ".join(parts) or "an unknown share: no rows")


def judge(rows: list[Row]) -> list[Verdict]:
    """Return what the share of every model comes to, which no length of the paper's training is known for, and whether
    all of them are negligible.
    """
    ours = _simulated(rows)
    found = []
    for claim in claims_of(NAME):
        share = ours.get(str(claim.conditions.get("model")))
        if share is not None:
            words = f"{share['percent']:.2g} % of {share['steps']} steps"
            calibration = share["calibration"]
            found.append(Verdict(claim.id, "not comparable", words, "simulated", calibration, SAID, COMMAND, COST))
        elif claim.id.endswith("negligible") and len(ours) == len(MODELS):
            shares = [one["percent"] for one in ours.values()]
            below = sum(value < NEGLIGIBLE for value in shares)
            outcome: Outcome = "agrees" if below == len(shares) else "disagrees"
            words = f"{below} of {len(shares)} below {NEGLIGIBLE:g} %: {min(shares):.2g} to {max(shares):.2g} %"
            calibration = next(iter(ours.values()))["calibration"]
            found.append(Verdict(claim.id, outcome, words, "simulated", calibration, SAID, COMMAND, COST))
    return found


def lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line per model of the paper that was simulated, then one per model that was trained."""
    table = []
    for name, one in _simulated(rows).items():
        claim = next((c for c in claims_of(NAME) if c.conditions.get("model") == name), None)
        table.append({
            "model": name, "paper": f"{claim.bounds[0]:g}" if claim and claim.bounds else "-",
            "ours": f"{one['percent']:.2g}", "observed": one["observed"], "steps": one["steps"],
            "profile_s": f"{one['profile_s']:.2g}", "plan_s": "not simulated", "source": "simulated",
        })  # fmt: skip
    real = [row for row in rows if not row.case.calibration and row.case.steps >= FEWEST_STEPS]
    real = [row for row in real if row.case.scheme == SCHEME and "profile_share" in row.metrics]
    for model in sorted({row.case.model for row in real}):
        runs = [row for row in real if row.case.model == model]
        middle = {key: median(metric(row, key) for row in runs) for key in ("profile_share", "profile_s", "plan_s")}
        table.append({
            "model": model, "paper": "-", "ours": f"{100 * middle['profile_share']:.2g}",
            "observed": int(metric(runs[0], "profiled_steps")), "steps": runs[0].case.steps,
            "profile_s": f"{middle['profile_s']:.2g}", "plan_s": f"{middle['plan_s']:.2g}",
            "source": f"{runs[0].origin.kind}, {len(runs)} runs",
        })  # fmt: skip
    return table


def _simulated(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return what the observed steps take of the authors' epochs, by the paper's name of the model."""
    found: dict[str, dict[str, Any]] = {}
    defaults: Any = schemes[SCHEME].defaults
    for model, (name, workload) in MODELS.items():
        mine = [row for row in rows if row.case.calibration and row.case.model == model]
        times = {row.case.scheme: metric(row, "iteration_s") for row in mine}
        if not {SCHEME, DENSE} <= set(times):
            continue
        observed, steps = defaults.profile_iters, _steps(workload, mine[0].case.world_size)
        profile_s = observed * times[DENSE]
        percent = 100 * profile_s / (profile_s + (steps - observed) * times[SCHEME])
        found[name] = {
            "percent": percent, "observed": observed, "steps": steps, "profile_s": profile_s,
            "calibration": mine[0].case.costs,
        }  # fmt: skip
    return found


@cache
def _steps(workload: str, world_size: int) -> int:
    point = {"workload": workload, "preset": "paper", "cluster": "64gpu", "world_size": world_size}
    return int(with_steps(compose(point))["steps"])
