"""MergeComp Table 4: accuracy of FP32, layer-wise and merged compression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import LONG, Finals, judged_gaps, longest, trained
from experiments.common.evaluation.judging import absent, complete, number
from experiments.common.evaluation.quality_curves import SCALE, compared, grouped, judged_order, origin, values
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row

NAME = "mergecomp.table4"
TITLE = "Accuracy of layer-wise and merged compression"
NEEDS = {"experiment": ("mergecomp_quality", LONG).__contains__, "calibration": ""}
COMMAND = "ssfx run experiment=mergecomp_quality"

CELLS = {"cifar10": ("ResNet50 on CIFAR10", "dgc"), "imagenet": ("ResNet50 on ImageNet", "ef_signsgd")}
WAYS = {"fp32": "ddp", "layerwise": "per_tensor", "mergecomp": "mergecomp"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's accuracies beside those of the small task here."""
    shown = [row for _, compressor in CELLS.values() for row in used(rows, compressor)]
    if not shown:
        return []
    table = []
    for key, (task, compressor) in CELLS.items():
        for way, scheme in WAYS.items():
            own = top1(rows, scheme, compressor)
            spread = f"{min(own):.1f} to {max(own):.1f}" if own else ""
            table.append(
                {
                    "task": task,
                    "method": way,
                    "compressor": compressor if way != "fp32" else "",
                    "paper": number(f"{NAME}.{key}.{way}"),
                    "here": round(fmean(own), 1) if own else "",
                    "range": spread,
                    "seeds": len(own),
                }
            )
    columns = {
        "task": "paper: task",
        "method": "method",
        "compressor": "compressor",
        "paper": "paper (%)",
        "here": "ssfx, small\nnetwork (%)",
        "range": "range",
        "seeds": "seeds",
    }
    return draw_table(
        NAME, TITLE, columns, table, out, origin=origin(shown), used=list({row.run_id: row for row in shown}.values())
    )


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return sign and rank of gaps to FP32, and whether merging keeps the accuracy; levels are of other networks."""
    found, pairs = [], []
    for key, (_, compressor) in CELLS.items():
        if own := top1(rows, WAYS["fp32"], compressor):
            mean = f"{fmean(own):.1f} percent"
            found.append(absent(f"{NAME}.{key}.fp32", f"another network and data: {SCALE}", "not comparable", mean))
        shown = used(rows, compressor)
        finals = {way: top1(rows, scheme, compressor) for way, scheme in WAYS.items()}
        printed = {way: number(f"{NAME}.{key}.{way}") / number(f"{NAME}.{key}.fp32") for way in WAYS}
        claims = {way: f"{NAME}.{key}.{way}" for way in WAYS if way != "fp32"}
        found += judged_gaps([Finals(finals, trained(shown), "fp32")] if shown else [], claims, printed)
        merged, apart = (top1(rows, scheme, compressor) for scheme in ("mergecomp", "per_tensor"))
        if merged and apart:
            pairs.append((compressor, *compared(merged, apart), "equal"))
    if pairs:
        found.append(judged_order(f"{NAME}.preserve", pairs))
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def top1(rows: list[Row], scheme: str, compressor: str) -> list[float]:
    """Return the final accuracies of one method, in percent, a value for every seed."""
    own = grouped([row for row in used(rows, compressor) if row.case.scheme == scheme], lambda row: row.case.scheme)
    return [100 * value for methods in own.values() for part in methods.values() for value in values(part, "top1")]


def used(rows: list[Row], compressor: str) -> list[Row]:
    """Return the rows of dense training and of a compressor: the longest training that has all ways of one task."""

    def way(row: Row) -> str:
        case = row.case
        usual = case.memory in (None, "none", "residual") and not case.scheme_options
        return case.scheme if usual and case.scheme in WAYS.values() and case.compressor in (None, compressor) else ""

    own = [row for row in rows if way(row) and "top1" in row.metrics]
    return longest(own, way, set(WAYS.values()))
