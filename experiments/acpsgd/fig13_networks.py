"""ACP-SGD Fig. 13: iteration time on three networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import COLOURS, NOTE, bar, iteration_s
from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions, prediction_bars
from experiments.common.evaluation.step_plots import Bars, draw_panels
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_acpsgd import NETWORKS, Setup, ratios
from experiments.common.validation.published_steps import Steps
from ssfx.core.rows import Row

NAME = "acpsgd.fig13"
TITLE = "Iteration time on three networks"
CLAIMS = (NAME,)
NEEDS = {"experiment": "acpsgd_sweeps", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_sweeps"
NOTES = (NOTE,)

METHODS = ("ssgd", "powersgd-star", "acpsgd")
SHOWN = (*METHODS, AUTO)
MODELS = ("ResNet-50", "BERT-Base")
ORDER = {"1GbE": "1 Gb/s Ethernet", "10GbE": "10 Gb/s Ethernet", "100GbIB": "100 Gb/s InfiniBand"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a network and model; the paper prints ratios only."""
    panels = [
        Bars(
            f"{model}, {label}",
            [bar(rows, name, Setup(model, network=network)) for name in SHOWN],
            "iteration (s)",
        )
        for network, label in ORDER.items()
        for model in MODELS
    ]
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig13.")]
    gains = prediction_bars(rows, own, "gain over S-SGD: ResNet-50, then BERT-Base", COLOURS, logarithmic=True)
    return draw_panels(NAME, [*panels, gains], rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the ratios of the text, the networks and the order."""
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig13.")]
    rates = sorted(cluster(name).inter.gbps for name in NETWORKS.values())
    networks = held("acpsgd.headline.network", (rates[0], rates[-1]), tolerance=0.0)
    return complete(NAME, [networks, *judge_predictions(rows, own), *judge_orders(rows, ORDERS)], COMMAND)


def _best(steps: Steps) -> tuple[bool, str]:
    places = [Setup(model, network=network) for model in MODELS for network in ORDER]
    wins = [min(METHODS, key=lambda name: iteration_s(steps, name, at)) == "acpsgd" for at in places]
    return all(wins), f"fastest in {sum(wins)} of {len(wins)} cases"


ORDERS: dict[str, Rule] = {"acpsgd.fig13.best": _best}
