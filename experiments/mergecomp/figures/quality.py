"""MergeComp Table 4: accuracy of FP32, layer-wise and merged compression, from long runs."""

from statistics import fmean

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import Judged, long_figure
from experiments.common.evaluation.gaps import COST, NO_ROW, SCALE, Compared, Task, judged_gaps, judged_order, there_is
from experiments.common.evaluation.judging import absent
from experiments.common.evaluation.mergecomp_panels import WAYS, quality_task
from experiments.common.evaluation.quality_panels import origin
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import Table
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.core.rows import Row

TABLE = "mergecomp.table4"
CELLS = {"cifar10": ("ResNet50 on CIFAR10", "dgc"), "imagenet": ("ResNet50 on ImageNet", "ef_signsgd")}


def used(rows: list[Row]) -> list[Row]:
    """Return the rows that the table shows."""
    found = [quality_task(rows, compressor) for _, compressor in CELLS.values()]
    return list({row.run_id: row for one in found if one for own in one.methods.values() for row in own}.values())


def _lines(figure: Figure, rows: list[Row]) -> Table:
    """Return the paper's accuracies beside those of the small network here, and the gaps to FP32 of both."""
    if not used(rows):
        return []
    found = {key: quality_task(rows, compressor) for key, (_, compressor) in CELLS.items()}
    table = []
    for key, (name, compressor) in CELLS.items():
        one = found[key]
        for way in WAYS:
            own = top1(one, way)
            table.append(
                {
                    "task": name,
                    "method": way,
                    "compressor": compressor if way != "fp32" else "",
                    "paper": f"{number(f'{TABLE}.{key}.{way}'):.1f}",
                    "paper_gap": f"{100 * (_printed(key)[way] - 1):+.1f}" if way != "fp32" else "",
                    "here": f"{fmean(own):.1f}" if own else NO_ROW,
                    "gap": str(one.gap(way, "fp32")) if one and way != "fp32" and own else "",
                    "seeds": str(len(own)) if own else "",
                }
            )
    return table


def _verdicts(rows: list[Row]) -> list[Verdict]:
    """Return sign and rank of gaps to FP32, and whether merging keeps the accuracy; levels are of other networks."""
    found: list[Verdict] = []
    pairs: list[Compared] = []
    missing: dict[str, str] = {}
    words = ""
    for key, (paper, compressor) in CELLS.items():
        one = quality_task(rows, compressor)
        if own := top1(one, "fp32"):
            mean = f"{fmean(own):.1f} percent"
            why = f"another network and data: {SCALE}"
            found.append(absent(f"{TABLE}.{key}.fp32", why, "not comparable", mean, "measured"))
        claims = {way: f"{TABLE}.{key}.{way}" for way in WAYS if way != "fp32"}
        found += judged_gaps(
            [one] if one else [],
            claims,
            _printed(key),
            "fp32",
            paper,
            lambda way, compressor=compressor: f"{way} {compressor}",  # type: ignore[misc]
        )
        if one and one.knows("mergecomp", "layerwise"):
            pairs.append((f"{compressor}: merged over layer-wise", one.gap("mergecomp", "layerwise"), "equal"))
            words = one.words
        else:
            missing[f"merged {compressor}"] = there_is([one] if one else [], "mergecomp")
    return [*found, judged_order(f"{TABLE}.preserve", pairs, words, missing)]


def top1(one: Task | None, way: str) -> list[float]:
    """Return the final accuracies of one way, in percent, a value for every seed that FP32 has, if it has any."""
    rows = one.methods.get(way, ()) if one else ()
    seeds = one.shared(way, "fp32") if one else []
    return [100 * float(row.metrics["top1"] or 0.0) for row in rows if not seeds or row.case.seed in seeds]


def _printed(key: str) -> dict[str, float]:
    return {way: number(f"{TABLE}.{key}.{way}") / number(f"{TABLE}.{key}.fp32") for way in WAYS}


TABLE4 = long_figure(
    TABLE,
    "Accuracy of layer-wise and merged compression",
    Tabular(
        {
            "task": "paper: task",
            "method": "method",
            "compressor": "compressor",
            "paper": "paper (%)",
            "paper_gap": "paper, over\nFP32 (%)",
            "here": "VGG\nhere (%)",
            "gap": "here, over FP32\n(95 % interval)",
            "seeds": "seeds",
        },
        _lines,
        lambda _, rows: origin(used(rows), "mean of"),
        used,
    ),
    Judged(_verdicts, cost=COST),
    notes=("No long run is of a small ResNet: a VGG on CIFAR-10 stands for ResNet50 in both rows.",),
)
