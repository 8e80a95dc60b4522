"""MergeComp's scaling factors and ratios of times, from simulated rows: Figs. 2, 4, 5, 7 and 8, Tables 2 and 3."""

from itertools import product

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.artifacts import Claims, Judged, about
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.judging import absent, held
from experiments.common.evaluation.mergecomp_panels import (
    GPUS,
    LABELS,
    beside_fp32,
    convergence_panels,
    factor,
    factor_panels,
    fp32_factors,
    judge_convergence,
    lines_by_groups,
    merged_panels,
)
from experiments.common.evaluation.row_steps import (
    SORTS_NOTHING,
    in_all,
    judge_predictions,
    simulated_rows,
    values_by_calibration,
)
from experiments.common.evaluation.step_plots import Panels
from experiments.common.figures.auto import SAME_COMPRESSOR
from experiments.common.figures.figure import Figure, simulated
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_mergecomp import Setup, ratios, scaling_factor, scaling_factors, timed
from experiments.common.validation.published_steps import PaperStep, Prediction, Steps, Value, largest, number
from ssfx.core.rows import Row

SMALL, LARGE = ("ResNet50", "CIFAR10"), ("ResNet101", "ImageNet")
CLUSTERS = simulated("mergecomp_clusters")


# ---- Fig. 2: layer-wise compression ----------------------------------------------------------------------------------

SLOWEST = ("topk", "dgc", "onebit")


def _relative(steps: Steps, compressor: str, gpus: int) -> float:
    at = Setup(*SMALL, gpus, "PCIe")
    return factor(steps, "layerwise", compressor, at) / factor(steps, "fp32", "", at)


def _lost(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the loss against FP32."""
    lost = values_by_calibration(
        rows, lambda steps: [1 - _relative(steps, name, gpus) for name in SLOWEST for gpus in GPUS]
    )
    return [
        held("mergecomp.fig2.drop30", (min(one), max(one)), source="simulated", calibration=calibration)
        for calibration, one in lost.items()
    ]


def _most_worse(steps: Steps) -> tuple[list[float], str]:
    """Return by how much the slowest are slower, of so many that they are most."""
    slower = sorted((1 / _relative(steps, name, max(GPUS)) - 1 for name in LABELS), reverse=True)
    worse = sum(lead > 0 for lead in slower)
    return slower[: len(LABELS) // 2 + 1], f"{worse} of {len(LABELS)} slower on {max(GPUS)} GPUs over PCIe"


FIG2 = Figure(
    "mergecomp.fig2",
    "Scaling factors of layer-wise compression",
    Panels(lambda rows: factor_panels(rows, "layerwise", *SMALL)),
    Judged(_lost, orders={"mergecomp.fig2.most_worse": _most_worse}),
    needs=CLUSTERS,
)


# ---- Figs. 4 and 5: merged compression -------------------------------------------------------------------------------

VISIBLE = 0.1
"""A smaller relative difference counts as none."""


def _merged(steps: Steps, compressor: str) -> float:
    """Return the scaling factor of MergeComp over the layer-wise one, on 8 GPUs over PCIe."""
    at = Setup(*SMALL, 8, "PCIe")
    return factor(steps, "Y=2", compressor, at) / factor(steps, "layerwise", compressor, at)


def _topk(steps: Steps) -> tuple[bool, str]:
    ratio = _merged(steps, "topk")
    return abs(ratio - 1) < VISIBLE, f"{ratio:.2f}x of layer-wise Top-k"


def _layerwise_fp16(steps: Steps) -> tuple[list[float], str]:
    at = Setup(*SMALL, 8, "NVLink")
    ratio = factor(steps, "layerwise", "fp16", at) / factor(steps, "fp32", "", at)
    return [1 / ratio - 1], f"{ratio:.2f}x of FP32"


FIG4 = Figure(
    "mergecomp.fig4",
    "Scaling factors of MergeComp, ResNet50 on CIFAR10",
    Panels(lambda rows: merged_panels("mergecomp.fig4", SMALL, rows)),
    Judged(
        predictions=lambda: [
            *ratios(),
            *scaling_factors(),
            Prediction(
                "mergecomp.headline.max", "", "largest gain", lambda steps: max(_merged(steps, name) for name in LABELS)
            ),
        ],
        orders={"mergecomp.fig4.topk": _topk, "mergecomp.fig4.nv.fp16_layer": _layerwise_fp16},
        not_comparable={"mergecomp.fig4.topk": SORTS_NOTHING},
    ),
    needs=CLUSTERS,
)


def _best(way: str, compressor: str) -> Value:
    """Return the best scaling factor of a method on NVLink."""
    return largest(scaling_factor(timed(way, compressor, Setup(*LARGE, gpus, "NVLink"))) for gpus in GPUS)


def _fig5_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on gains and scaling factors, those beside FP32's."""
    name = "mergecomp.headline.sf"
    best = Prediction(name, "", "best scaling factor", _best("Y=2", "fp16"), number)
    own = judge_predictions(rows, [*about("mergecomp.fig5", [*ratios(), *scaling_factors()]), best])
    return beside_fp32(rows, own, {**fp32_factors(), name: _best("fp32", "")})


FIG5 = Figure(
    "mergecomp.fig5",
    "Scaling factors of MergeComp, ResNet101 on ImageNet",
    Panels(lambda rows: merged_panels("mergecomp.fig5", LARGE, rows)),
    Judged(_fig5_verdicts),
    needs=CLUSTERS,
)


# ---- Figs. 7 and 8: time to converge, as curves by iteration are taken to coincide -----------------------------------


def _converging(name: str, title: str, compressor: str) -> Figure:
    """Return a figure of how many times as long an iteration takes without MergeComp."""
    return Figure(
        name,
        title,
        Panels(lambda rows: convergence_panels(name, simulated_rows(rows), compressor), simulated_rows),
        Judged(lambda rows: judge_convergence(name, rows, compressor)),
        needs={"experiment": ("mergecomp_clusters", LONG).__contains__},
        command="ssfx run experiment=mergecomp_clusters",
        notes=(SAME_COMPRESSOR,),
    )


FIG7 = _converging("mergecomp.fig7", "Time to converge, ResNet50 on CIFAR10 with DGC", "dgc")
FIG8 = _converging("mergecomp.fig8", "Time to converge, ResNet50 on ImageNet with EFSignSGD", "ef_signsgd")


# ---- Tables 2 and 3: numbers of groups -------------------------------------------------------------------------------

GROUPED = ("fp16", "dgc", "ef_signsgd")
"""Compressors of both tables."""
ALIKE = 0.02
"""The largest difference that the paper itself has between Y = 2 and 3, doubled."""
BY_GROUPS = Tabular(
    {
        "compressor": "compressor",
        "Y": "Y",
        "GPUs": "GPUs",
        "paper": "paper",
        "simulated_nominal": "ssfx, simulated\nnominal times",
        "simulated_published": "ssfx, simulated\npublished times",
    },
    lambda figure, rows: lines_by_groups(figure.name, rows),
    "Simulated steps on v100 devices over PCIe; no GPU was used. Nothing was fitted to the paper's table.",
)


def _cells(steps: Steps) -> dict[tuple[str, int, int], float]:
    cells = {}
    for one in about("mergecomp.table2", ratios()):
        name, y = one.label.split(" Y=")
        cells[name, int(y), int(one.panel.rpartition("x")[2])] = one.value(steps)
    return cells


def _rising(steps: Steps) -> list[float]:
    """Return by how much the speed over one group is higher with the most GPUs than with the fewest, line by line."""
    cells = _cells(steps)
    lines = sorted({key[:2] for key in cells})
    return [cells[*line, max(GPUS)] / cells[*line, min(GPUS)] - 1 for line in lines]


def _y3(steps: Steps) -> tuple[Outcome | bool, str]:
    """Return whether Y = 3 and Y = 4 are about like Y = 2, in time over that of one group."""
    apart = {
        way: max(abs(_over_one(steps, way, *at) - _over_one(steps, "Y=2", *at)) for at in product(GROUPED, GPUS))
        for way in ("Y=3", "Y=4")
    }
    words = " and ".join(f"{way} by {most:.3f}" for way, most in apart.items())
    return max(apart.values()) <= ALIKE, f"apart at most: {words}"


def _over_one(steps: Steps, way: str, compressor: str, gpus: int) -> float:
    at = Setup(*LARGE, gpus, "PCIe")
    one, several = (steps.step(*timed(name, compressor, at)).iteration_s for name in ("Y=1", way))
    return one / several


TABLE2 = Figure(
    "mergecomp.table2",
    "Speed over that of one group, ResNet101",
    BY_GROUPS,
    Judged(
        predictions=ratios,
        orders={
            "mergecomp.table2.grows": in_all("grows from 2 to 8 GPUs in {} of {} lines", _rising),
            "mergecomp.table2.y3": _y3,
        },
    ),
    needs=simulated("mergecomp_groups"),
)


TABLE3 = Figure(
    "mergecomp.table3",
    "Gain over an even split, ResNet101",
    BY_GROUPS,
    Judged(
        predictions=lambda: [
            *ratios(),
            Prediction(
                "mergecomp.table3.max",
                "",
                "largest gain",
                largest(one.value for one in about("mergecomp.table3", ratios())),
            ),
        ]
    ),
    needs=simulated("mergecomp_groups"),
)


# ---- Section 3.2: the budget of an iteration -------------------------------------------------------------------------

AT = Setup(*SMALL, 2, "PCIe")


def _nominal(rows: list[Row]) -> list[Row]:
    """Return the rows of nominal times: published ones were fitted to the budget."""
    return [row for row in rows if row.case.calibration.startswith("nominal")]


def _step(steps: Steps, way: str, compressor: str) -> PaperStep:
    return steps.step(*timed(way, compressor, AT))


def _budget(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the parts of the budget, from nominal times only."""
    parts = {
        "mergecomp.budget.iter": lambda steps: steps.alone_s(AT.setting),
        "mergecomp.budget.comm": lambda steps: _step(steps, "fp32", "").exposed_comm_s,
        "mergecomp.budget.comm_c": lambda steps: _step(steps, "layerwise", "dgc").exposed_comm_s,
        "mergecomp.budget.ef": lambda steps: _step(steps, "layerwise", "ef_signsgd").sparsify_s,
        "mergecomp.budget.dgc": lambda steps: _step(steps, "layerwise", "dgc").sparsify_s,
    }
    own = [Prediction(claim, "", "", value, lambda claim_id: number(claim_id) / 1e3) for claim, value in parts.items()]
    found = judge_predictions(_nominal(rows), own)
    return found or [absent(claim, f"no rows yet: {TWO_GPUS.command}") for claim in parts]


TWO_GPUS = Figure(
    "mergecomp.text.2gpu",
    "Budget of an iteration on two GPUs",
    Claims("Simulated steps on two v100 devices over PCIe, nominal times; no GPU was used.", _nominal),
    Judged(_budget),
    needs=CLUSTERS,
)
