"""ACP-SGD Fig. 9: what overlap with backward and tensor fusion gain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import COLOURS, LABELS, bar
from experiments.common.evaluation.judging import absent, complete
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions, prediction_bars
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.validation.published_acpsgd import Setup, ratios, timed
from experiments.common.validation.published_steps import Steps, mean, over
from ssfx.core.rows import Row

NAME = "acpsgd.fig9"
TITLE = "Gain of overlap (WFBP) and fusion (TF)"
NEEDS = {"experiment": "acpsgd_fusion", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_fusion"

METHODS = ("ssgd", "powersgd-star", "acpsgd")
MODELS = ("ResNet-152", "BERT-Large")
VARIANTS = {"(naive)": "naive", "(WFBP)": "WFBP", "": "WFBP\n+TF"}
ONE_PLAN = "Power-SGD* waits for the device at the end of every bucket here, so that both variants are one plan"
SENTENCES = ("acpsgd.fig9.", "acpsgd.headline.sysopt", "acpsgd.intro.ssgd_naive")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write three bars a method, one panel a model and method; the paper prints ratios, which are in the last panel."""
    panels = [
        Bars(
            f"{LABELS[name]}, {model}",
            [bar(rows, f"{name}{variant}", Setup(model), label) for variant, label in VARIANTS.items()],
            "iteration (s)",
        )
        for name in METHODS
        for model in MODELS
    ]
    own = [one for one in ratios() if one.claim.startswith(SENTENCES)]
    gains = prediction_bars(rows, [one for one in own if "fusion" in one.panel], "gain of fusion over WFBP", COLOURS)
    return draw_panels(NAME, [*panels, gains], rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the gains of the text and on their order."""
    own = [one for one in ratios() if one.claim.startswith(SENTENCES)]
    one_plan = absent("acpsgd.fig9.power_wfbp", ONE_PLAN, "not comparable")
    return complete(NAME, [one_plan, *judge_predictions(rows, own), *judge_orders(rows, ORDERS)], COMMAND)


def _power_most(steps: Steps) -> tuple[bool, str]:
    gains = {
        name: mean([over(timed(f"{name}(WFBP)", Setup(m)), timed(name, Setup(m))) for m in MODELS])(steps)
        for name in METHODS
    }
    holds = gains["powersgd-star"] > max(gains["acpsgd"], gains["ssgd"])
    return holds, ", ".join(f"{LABELS[name]} {gain:.2f}x" for name, gain in gains.items())


ORDERS: dict[str, Rule] = {"acpsgd.fig9.tf_power_most": _power_most}
