"""SSFusion Table I: the share of tensors of which nothing is sent, by fusion degree, in the paper and measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common.claims.ledger import PaperClaim, claims_of
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.quality_curves import NO_ROW
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Panel, metric, panels

NAME = "ssfusion.table1"
TITLE = "Table I: tensors of which nothing is sent, by fusion degree (percent of the tensors)"
NEEDS = {"experiment": ("missing_rate", LONG).__contains__}
COMMAND = "ssfx run experiment=missing_rate preset=short"
COST = "5 minutes on two cores"

MODELS = {"resnet152_digits": "ResNet-152", "bert_large_narrow": "BERT-large"}
"""Models here, and those of the paper whose tensors they have; the second one's tensors are narrower."""
TRAINED = "vgg_small_cifar10"
"""The model of long runs, whose rates are means over all of a training; it is in no verdict."""
WHOLE = "resnet152_digits"
"""The model whose tensors have the sizes of the paper's."""
DENSITY = 0.01
"""The paper's."""
NOTES = (
    "ResNet-152 has all its 467 tensors at full size, on 8x8 digits instead of CIFAR-100 and with two workers instead "
    "of eight, from random weights. BERT-large has all its tensors but narrower ones: only the trend counts.",
    "A small VGG, with 12 tensors, was trained for 2,000 steps on four workers: it shows what training does to the "
    "rate, not how high it is.",
    "A fusion degree of n percent: n percent of the tensors, counted from the output layer, are compressed jointly.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table: a line per fusion degree, per model the paper's column and ours by memory."""
    table = lines(rows)
    if not table:
        return []
    columns = {"degree": "fusion degree"}
    for key in table[0]:
        if key != "degree":
            columns[key] = key.replace(" | memory none", "\nno residual").replace(" | ", "\n").replace("memory ", "")
    rows = [row for row in rows if row.case.experiment != LONG or _like_the_paper(row)]
    hardware = "; ".join(sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows}))
    origin = (
        f"{hardware[0].upper()}{hardware[1:]}; ResNet-152 on digits, a narrow BERT-large: two workers, random weights; "
        "VGG on CIFAR-10: a whole training."
    )
    return draw_table(NAME, TITLE, columns, table, out, origin=origin, used=rows)


def finding(rows: list[Row]) -> str:
    """Return, per model, our rates at the least and the full fusion degree."""
    parts = []
    for model, found in _rates(rows).items():
        degrees = [degree for degree in found if degree]
        if degrees:
            low, high = (
                f"{min(found[d].values()):.3g} to {max(found[d].values()):.3g} %" for d in (min(degrees), max(degrees))
            )
            parts.append(f"{model}: {low} at {min(degrees):g} %, {high} at {max(degrees):g} %")
    return "tensors of which nothing is sent: " + ("; ".join(parts) or "no two workers")


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on rates of zero and on trends; other rates after steps from random weights do not compare."""
    found = []
    rates = _rates(rows)
    for claim in claims_of(NAME):
        model = next((name for name, theirs in MODELS.items() if theirs == claim.conditions.get("model")), "")
        ours = rates.get(model, {})
        at = _degrees(claim, ours)
        if not at or claim.bounds is None:
            continue
        values = [value for degree in at for value in ours[degree].values()]
        here = (min(values), max(values))
        said = f"{NOTES[0].partition('. ')[0]}." if model == WHOLE else "Our BERT-large has narrower tensors."
        if len(at) > 1:
            found.append(_trend(claim, ours, said))
        elif claim.bounds == (0.0, 0.0):
            one = compared(claim.id, claim.bounds, here, unit="%", source="measured")
            found.append(replace(one, reason=said, command=COMMAND, cost=COST))
        else:
            words = compared(claim.id, claim.bounds, here, unit="%").ours
            found.append(Verdict(claim.id, "not comparable", words, "measured", "", said, COMMAND, COST))
    return found


def lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line per fusion degree: per model the paper's rate and ours, by memory."""
    rates = _rates(rows)
    degrees = sorted({degree for found in rates.values() for degree in found})
    table = []
    for degree in degrees:
        line: dict[str, Any] = {"degree": f"{degree:g} %" if degree else "per-tensor"}
        for model, found in rates.items():
            claim = _claim(model, degree)
            printed = f"{claim.bounds[0]:.1f}" if claim and claim.bounds else "-"
            if model != TRAINED:
                line[f"paper | {MODELS.get(model, model)}"] = printed if degree else printed.replace("0.0", "0")
            for memory in sorted({memory for one in found.values() for memory in one}):
                value = found.get(degree, {}).get(memory)
                absent = NO_ROW if model == TRAINED else "-"
                line[f"{model} | memory {memory}"] = absent if value is None else f"{value:.1f}" if value else "0"
        table.append(line)
    return table


def _rates(rows: Sequence[Row]) -> dict[str, dict[float, dict[str, float]]]:
    """Return median rates in percent by model, fusion degree (0: per-tensor) and memory."""
    found: dict[str, dict[float, dict[str, list[float]]]] = {}
    for panel in panels(rows):
        for row in _used(panel):
            case = row.case
            degree = float(case.scheme_options.get("fusion_degree", 100)) if case.scheme == "fused_all" else 0.0
            memories = found.setdefault(case.model, {}).setdefault(degree, {})
            memories.setdefault(str(case.memory), []).append(100 * metric(row, "tensor_missing_rate"))
    order = [*MODELS, *sorted(set(found) - set(MODELS))]
    return {
        model: {
            degree: {memory: median(values) for memory, values in memories.items()}
            for degree, memories in sorted(found[model].items())
        }
        for model in order
        if model in found
    }


def _used(panel: Panel) -> list[Row]:
    own = [row for bar in panel.bars.values() for row in bar if row.case.scheme in ("fused_all", "per_tensor")]
    return [row for row in own if row.case.experiment != LONG or _like_the_paper(row)]


def _like_the_paper(row: Row) -> bool:
    """Return whether a long run is of TRAINED with the compressor and the density of the paper."""
    case = row.case
    plain = set(case.scheme_options) <= {"fusion_degree"} and case.memory in ("residual", "none")
    return case.model == TRAINED and (case.compressor, case.density) == ("dgc", DENSITY) and plain


def _claim(model: str, degree: float) -> PaperClaim | None:
    subject = f"multi-tensor({degree:g})" if degree else "per-tensor"
    for claim in claims_of(NAME):
        if (claim.subject, claim.conditions.get("model")) == (subject, MODELS.get(model)):
            return claim
    return None


def _degrees(claim: PaperClaim, ours: Mapping[float, object]) -> list[float]:
    """Return the fusion degrees that a claim is about, if all of them were run."""
    asked = claim.conditions.get("fusion_degree", 0)
    wanted = [float(degree) for degree in (asked if isinstance(asked, list) else [asked])]
    return wanted if set(wanted) <= set(ours) else []


def _trend(claim: PaperClaim, ours: Mapping[float, Mapping[str, float]], said: str) -> Verdict:
    """Return whether the rate grows with every degree, from and to where the paper has it."""
    degrees = [degree for degree in ours if degree]
    series = [[ours[degree][memory] for degree in degrees] for memory in ours[degrees[0]]]
    grows = all(a < b for one in series for a, b in pairwise(one))
    assert claim.bounds is not None
    ends = [one[0] for one in series], [one[-1] for one in series]
    close = all(
        abs(value / stated - 1) <= 0.05 for values, stated in zip(ends, claim.bounds, strict=True) for value in values
    )
    outcome: Outcome = "agrees" if grows and close else "partly" if grows else "disagrees"
    here = f"grows from {min(ends[0]):.3g} to {max(ends[1]):.3g} %" if grows else "does not grow throughout"
    return Verdict(claim.id, outcome, here, "measured", "", said, COMMAND, COST)
