"""The compressors of the MergeComp paper as its figures show them, from simulated rows."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import about
from experiments.common.evaluation.gaps import LONG, Task, lacking, task_of, tasks, there_is, usual
from experiments.common.evaluation.row_steps import (
    CLOSE,
    NoRow,
    auto_at,
    by_calibration,
    judge_predictions,
    prediction_bars,
    values_by_calibration,
)
from experiments.common.evaluation.step_plots import Bar, Bars, Line, Lines
from experiments.common.figures.auto import COLOUR, LABEL
from experiments.common.validation.published_mergecomp import (
    Setup,
    ratios,
    scaling_factor,
    scaling_factors,
    setup_of,
    timed,
)
from experiments.common.validation.published_steps import Steps, Value, number, over
from ssfx.core.rows import Row

LABELS = {
    "fp16": "FP16",
    "dgc": "DGC",
    "topk": "Top-k",
    "randomk": "Rand-k",
    "ef_signsgd": "EFSignSGD",
    "qsgd": "QSGD",
    "signsgd": "SignSGD, SigNUM",
    "onebit": "OneBit",
}
"""SigNUM is SignSGD of a momentum: on the wire and in time it is the same."""
COLOURS = {
    "fp16": "#56b4e9",
    "dgc": "#d55e00",
    "topk": "#b8860b",
    "randomk": "#8c564b",
    "ef_signsgd": "#009e73",
    "qsgd": "#cc79a7",
    "signsgd": "#74b06f",
    "onebit": "#7a5195",
}
DENSE, PINK = "#000000", "#cc79a7"
GPUS = (2, 4, 8)
WAYS = {"fp32": "ddp", "layerwise": "per_tensor", "mergecomp": "mergecomp"}
"""The paper's ways to exchange, and ours."""
NETWORK, DENSITY = "vgg", 0.01
"""In the name of our network that stands for ResNet50 where quality is measured; the paper's density of DGC."""
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
            panels.append(Lines(title, lines, "GPUs", "scaling factor"))
    return panels


def merged_panels(name: str, workload: tuple[str, str], rows: Sequence[Row]) -> list[Bars | Lines]:
    """Return the scaling factors of MergeComp over GPUs, and the gains and factors that the text prints."""
    gains, nvlink = "gain of MergeComp, 8 GPUs, PCIe", "scaling factor on NVLink"
    bars = [
        prediction_bars(rows, about(name, ratios()), gains, {"dgc": COLOURS["dgc"], "one bit": COLOURS["ef_signsgd"]}),
        prediction_bars(
            rows, about(name, scaling_factors()), nvlink, {"MergeComp": COLOURS["fp16"], "fp32": "#5f5f5f"}
        ),
    ]
    return [*factor_panels(rows, "Y=2", *workload), *bars]


def factor(steps: Steps, way: str, compressor: str, setup: Setup) -> float:
    """Return the scaling factor of a method of the paper."""
    return scaling_factor(timed(way, compressor, setup))(steps)


def _line(
    steps: Steps, way: str, compressor: str, label: str, colour: str, model: str, dataset: str, network: str
) -> Line:
    points = []
    for gpus in GPUS:
        with suppress(NoRow):
            points.append((float(gpus), factor(steps, way, compressor, Setup(model, dataset, gpus, network))))
    return Line(label, colour, {"published": points})


def convergence_panels(artifact: str, rows: Sequence[Row], compressor: str) -> list[Bars]:
    """Return the panels of a figure of times to converge: the paper's ratios, and that of auto with its compressor."""
    titles = ("time per iteration over MergeComp's, 4 GPUs", "scaling factor")
    every = zip(titles, (about(artifact, ratios()), about(artifact, scaling_factors())), strict=True)
    ratio, *others = [prediction_bars(rows, own, title, {"": PINK}) for title, own in every if own]
    merged, at = timed("Y=2", compressor, setup_of(f"{artifact}.base"))
    given = {key: value for key, value in merged.options if key in ("compressor", "density")}
    value = over(auto_at(at, **given), (merged, at))
    auto = Bar(f"{compressor}\nover {LABEL}", COLOUR, values_by_calibration(rows, value))
    return [replace(ratio, bars=[*ratio.bars, auto]), *others]


def quality_task(rows: Iterable[Row], compressor: str) -> Task | None:
    """Return the long runs of FP32, and of both ways to use a compressor."""
    ways = {scheme: way for way, scheme in WAYS.items()}

    def way(row: Row) -> str:
        case = row.case
        same = case.compressor in (None, compressor) and case.density in (None, DENSITY) and usual(row)
        return ways.get(case.scheme, "") if same else ""

    return task_of(tasks([row for row in rows if row.case.experiment == LONG], way), NETWORK)


def judge_convergence(artifact: str, rows: Sequence[Row], compressor: str) -> list[Verdict]:
    """Return verdicts on ratios of times to converge as ratios of iteration times, and what that takes for granted.

    Curves by iteration are taken to coincide. A ratio that agrees says nothing where merged compression ends clearly
    below what it is compared with.
    """
    task = quality_task(rows, compressor)
    found = []
    held = judge_predictions(rows, about(artifact, [*ratios(), *scaling_factors()]))
    for one in beside_fp32(rows, held, fp32_factors()):
        other = {f"{artifact}.base": "fp32", f"{artifact}.layer": "layerwise"}.get(one.claim)
        if other is None:
            found.append(one)
        elif task is None or not task.knows("mergecomp", other):
            found.append(
                _granted(one, lacking({f"merged {compressor}": there_is([task] if task else [], "mergecomp")}))
            )
        else:
            gap = task.gap("mergecomp", other)
            said = _granted(one, f"in {task.words} quality over {other} is {gap}")
            apart = one.outcome == "agrees" and gap.word == "below"
            lost = f"merging ends below {other}, so that the times of steps, which agree, are not those to converge"
            found.append(replace(said, outcome="not comparable", reason=f"{lost}; {said.reason}") if apart else said)
    return found


def _granted(one: Verdict, said: str) -> Verdict:
    said = f"curves by iteration are taken to coincide: {said}"
    return replace(one, reason="; ".join(filter(None, (one.reason, said))))


def beside_fp32(rows: Sequence[Row], verdicts: Iterable[Verdict], dense: Mapping[str, Value]) -> list[Verdict]:
    """Return the verdicts; of `dense` one that agrees names FP32's scaling factor, and is untested where it is enough.

    A simulation in which uncompressed training scales as well says nothing of merging.
    """
    found = []
    for one in verdicts:
        factors = values_by_calibration(rows, dense[one.claim]) if one.claim in dense else {}
        if one.outcome == "agrees" and one.calibration in factors:
            alone = factors[one.calibration]
            enough = alone >= (1 - CLOSE) * number(one.claim)
            why = f"FP32 alone has {100 * alone:.3g} % in this simulation" + (
                ", so that merging decides nothing" * enough
            )
            one = replace(one, outcome="not comparable" if enough else one.outcome, reason=why)
        found.append(one)
    return found


def fp32_factors() -> dict[str, Value]:
    """Return FP32's scaling factor where the paper prints one of MergeComp, by claim."""
    merged = [one.claim for one in scaling_factors() if one.label.startswith("MergeComp")]
    return {claim: scaling_factor(timed("fp32", "", setup_of(claim))) for claim in merged}


def lines_by_groups(name: str, rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the paper's table of speeds by number of groups, with our ratios next to its own."""
    table: list[dict[str, object]] = []
    for one in about(name, ratios()):
        compressor, y = one.label.split(" Y=")
        ours = {f"simulated_{key}": round(value, 3) for key, value in values_by_calibration(rows, one.value).items()}
        gpus = int(one.panel.rpartition("x")[2])
        table.append({"compressor": compressor, "Y": y, "GPUs": gpus, "paper": round(one.stated(one.claim), 3), **ours})
    return table
