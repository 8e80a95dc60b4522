"""The compressors of the MergeComp paper as its figures show them, from simulated rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.common.evaluation.row_steps import (
    NoRow,
    auto_at,
    by_calibration,
    prediction_bars,
    values_by_calibration,
)
from experiments.common.evaluation.step_plots import Bar, Bars, Line, Lines, draw_panels
from experiments.common.figures.auto import COLOUR, LABEL
from experiments.common.figures.tables import draw_table
from experiments.common.validation.published_mergecomp import (
    Setup,
    ratios,
    scaling_factor,
    scaling_factors,
    setup_of,
    timed,
)
from experiments.common.validation.published_steps import Prediction, Steps, over
from ssfx.core.rows import Row

LABELS = {
    "fp16": "FP16", "dgc": "DGC", "topk": "Top-k", "randomk": "Rand-k", "ef_signsgd": "EFSignSGD", "qsgd": "QSGD",
    "signsgd": "SignSGD, SigNUM", "onebit": "OneBit",
}  # fmt: skip
"""SigNUM is SignSGD of a momentum: on the wire and in time it is the same."""
COLOURS = {
    "fp16": "#56b4e9", "dgc": "#d55e00", "topk": "#b8860b", "randomk": "#8c564b", "ef_signsgd": "#009e73",
    "qsgd": "#cc79a7", "signsgd": "#74b06f", "onebit": "#7a5195",
}  # fmt: skip
DENSE, PINK = "#000000", "#cc79a7"
GPUS = (2, 4, 8)
NETWORKS = ("PCIe", "NVLink")


def factor_panels(rows: Sequence[Row], way: str, model: str, dataset: str) -> list[Lines]:
    """Return scaling factors over GPUs, a panel for each network and calibration, a line for each compressor."""
    panels = []
    for network in NETWORKS:
        for calibration, steps in by_calibration(rows).items():
            lines = [_line(steps, "fp32", "", "FP32", DENSE, model, dataset, network)]
            lines += [
                _line(steps, way, name, label, COLOURS[name], model, dataset, network) for name, label in LABELS.items()
            ]
            title = f"{network}, {calibration} times"
            panels.append(Lines(title, lines, "GPUs", "scaling factor", log_x=True))
    return panels


def draw_merged(name: str, workload: tuple[str, str], rows: Sequence[Row], out: Path) -> list[Path]:
    """Write the scaling factors of MergeComp over GPUs, and the gains and factors that the text prints."""
    gains, nvlink = "gain of MergeComp, 8 GPUs, PCIe", "scaling factor on NVLink"
    bars = [
        prediction_bars(rows, ratios_of(name), gains, {"dgc": COLOURS["dgc"], "one bit": COLOURS["ef_signsgd"]}),
        prediction_bars(rows, factors_of(name), nvlink, {"MergeComp": COLOURS["fp16"], "fp32": "#5f5f5f"}),
    ]
    return draw_panels(name, [*factor_panels(rows, "Y=2", *workload), *bars], rows, out)


def factor(steps: Steps, way: str, compressor: str, setup: Setup) -> float:
    """Return the scaling factor of a method of the paper."""
    return scaling_factor(timed(way, compressor, setup))(steps)


def _line(
    steps: Steps, way: str, compressor: str, label: str, colour: str, model: str, dataset: str, network: str
) -> Line:
    points = []
    for gpus in GPUS:
        try:
            points.append((float(gpus), factor(steps, way, compressor, Setup(model, dataset, gpus, network))))
        except NoRow:
            continue
    return Line(label, colour, {"published": points})


def ratios_of(artifact: str) -> list[Prediction]:
    """Return the ratios of times that the paper prints in a figure or table."""
    return [one for one in ratios() if one.claim.startswith(f"{artifact}.")]


def factors_of(artifact: str) -> list[Prediction]:
    """Return the scaling factors that the paper prints in a figure."""
    return [one for one in scaling_factors() if one.claim.startswith(f"{artifact}.")]


def panels_of(artifact: str) -> dict[str, list[Prediction]]:
    """Return the predictions of a figure of times to converge, by panel."""
    return {"time per iteration over MergeComp's, 4 GPUs": ratios_of(artifact), "scaling factor": factors_of(artifact)}


def convergence_panels(artifact: str, rows: Sequence[Row], compressor: str) -> list[Bars]:
    """Return the panels of a figure of times to converge: the paper's ratios, and that of auto with its compressor."""
    listed = [(title, own) for title, own in panels_of(artifact).items() if own]
    ratio, *others = [prediction_bars(rows, own, title, {"": PINK}) for title, own in listed]
    merged, at = timed("Y=2", compressor, setup_of(f"{artifact}.base"))
    given = {key: value for key, value in merged.options if key in ("compressor", "density")}
    value = over(auto_at(at, **given), (merged, at))
    auto = Bar(f"{compressor}\nover {LABEL}", COLOUR, values_by_calibration(rows, value))
    return [replace(ratio, bars=[*ratio.bars, auto]), *others]


def draw_groups(name: str, title: str, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write the paper's table of speeds by number of groups, with our ratios next to its own."""
    table = []
    for one in ratios_of(name):
        compressor, y = one.label.split(" Y=")
        ours = {f"simulated_{key}": round(value, 3) for key, value in values_by_calibration(rows, one.value).items()}
        gpus = int(one.panel.rpartition("x")[2])
        table.append({"compressor": compressor, "Y": y, "GPUs": gpus, "paper": round(one.stated(one.claim), 3), **ours})
    columns = {
        "compressor": "compressor",
        "Y": "Y",
        "GPUs": "GPUs",
        "paper": "paper",
        "simulated_nominal": "ssfx, simulated\nnominal times",
        "simulated_published": "ssfx, simulated\npublished times",
    }
    origin = "Simulated steps on v100 devices over PCIe; no GPU was used. Nothing was fitted to the paper's table."
    return draw_table(name, title, columns, table, out, origin=origin, used=rows)
