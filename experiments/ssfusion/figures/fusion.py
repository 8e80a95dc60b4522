"""What tensor fusion costs and saves, beside what was measured here: the share of Fig. 2, and Table I."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from experiments.common.claims.evidence import STAND_INS
from experiments.common.claims.ledger import PaperClaim, claims_of
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.evaluation.gaps import LONG, NO_ROW
from experiments.common.evaluation.quality_panels import where
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, frame, subplots
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import metric

# ---- Fig. 2: share of time spent on sparsification, by fusion degree -------------------------------------------------

SHORT, COST = "ssfx run experiment=missing_rate preset=short", "5 minutes on two cores"
FUSED_PANELS = {"resnet152_digits": "(a) ResNet-152", "bert_large_narrow": "(b) BERT-large, narrow"}


def _fig2(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return a panel per model: our share by fusion degree and memory, the paper's as open marks."""
    found = shares(rows)
    if not found:
        return None
    size_in = (COLUMN_IN * max(1.3, len(found)), 2.7)
    canvas, grid = subplots(1, len(found), figsize=size_in)
    for (model, memories), axis in zip(found.items(), grid.flat, strict=True):
        _share_panel(axis, model, memories)
    grid.flat[0].set_ylabel("sparsification, share of the time (%)")
    origin = f"{where(rows)}, two workers; level not comparable with the paper's GPUs."
    frame(canvas, figure.title, origin, 3)
    table = [
        {
            "model": model,
            "memory": memory,
            "fusion_degree": degree or "per-tensor",
            "sparsification_percent": value,
            "paper_percent": _printed_shares(model).get(degree),
        }
        for model, memories in found.items()
        for memory, series in memories.items()
        for degree, value in series.items()
    ]
    return canvas, table


def _fig2_finding(rows: list[Row]) -> str:
    """Return the share of per-tensor sparsification and that of full fusion, per model."""
    parts = []
    for model, memories in shares(rows).items():
        for memory, series in memories.items():
            values = list(series.values())
            parts.append(f"{model}, memory {memory}: {values[0]:.3g} to {values[-1]:.3g} %")
    return f"sparsification's share of a step, from least to full fusion: {'; '.join(parts) or 'no rows'}"


def _fig2_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return whether the share falls with the fusion degree, and our levels, which do not compare."""
    found = shares(rows)
    series = [one for memories in found.values() for one in memories.values() if len(one) > 1]
    if not series:
        return []
    steps = [a > b for one in series for a, b in pairwise([one[degree] for degree in one if degree])]
    outcome: Outcome = "agrees" if all(steps) else "disagrees"
    here = f"falls in {sum(steps)} of {len(steps)} steps between fusion degrees"
    said = "On two CPU ranks, ResNet-152 and a narrow BERT-large, with and without residual."
    return [Verdict("ssfusion.fig2.mono.share", outcome, here, "measured", "", said, SHORT, COST)]


def shares(rows: list[Row]) -> dict[str, dict[str, dict[float, float]]]:
    """Return the share of sparsification in percent by model, memory and fusion degree (0: per-tensor)."""
    own = [
        row
        for row in rows
        if row.case.world_size > 1
        and row.case.model in STAND_INS
        and row.case.scheme_options.get("fusion_degree") != 0  # which is per-tensor under another name
    ]
    found = by_fusion(own, lambda row: 100 * metric(row, "sparsify_s") / metric(row, "iteration_s"))
    return {
        model: {
            memory: {degree: one[memory] for degree, one in degrees.items() if memory in one}
            for memory in sorted({memory for one in degrees.values() for memory in one})
        }
        for model, degrees in found.items()
    }


Percents = dict[str, dict[float, dict[str, float]]]


def by_fusion(rows: Sequence[Row], percent: Callable[[Row], float]) -> Percents:
    """Return medians by model, fusion degree (0: per-tensor) and memory, of rows of the two schemes that have one."""
    found: dict[str, dict[float, dict[str, list[float]]]] = {}
    for case, row in ((row.case, row) for row in rows if row.case.scheme in ("fused_all", "per_tensor")):
        degree = float(case.scheme_options.get("fusion_degree", 100)) if case.scheme == "fused_all" else 0.0
        memories = found.setdefault(case.model, {}).setdefault(degree, {})
        memories.setdefault(str(case.memory), []).append(percent(row))
    return {
        model: {
            degree: {memory: median(values) for memory, values in memories.items()}
            for degree, memories in sorted(found[model].items())
        }
        for model in (*STAND_INS, *sorted(set(found) - set(STAND_INS)))
        if model in found
    }


def _printed_shares(model: str) -> dict[float, float]:
    """Return the shares that the paper prints, by fusion degree."""
    found = {}
    for claim in claims_of("ssfusion.fig2"):
        if (
            claim.metric == "sparsification_share"
            and claim.bounds
            and claim.conditions.get("model") == STAND_INS[model]
        ):
            found[float(claim.conditions.get("fusion_degree", 0))] = claim.bounds[0]
    return found


def _share_panel(axis: Axes, model: str, memories: Mapping[str, Mapping[float, float]]) -> None:
    colours = {"residual": "#0072b2", "none": "#e69f00"}
    for memory, series in memories.items():
        look: dict[str, Any] = {"color": colours.get(memory, "#5f5f5f"), "markersize": 4, "linewidth": 1}
        word = "without residual" if memory == "none" else "with residual"
        axis.plot(list(series), list(series.values()), "o-", label=f"here, {word}", **look)
    printed = _printed_shares(model)
    mark: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 5}
    axis.plot(list(printed), list(printed.values()), "D", label="printed in the paper", **mark)
    degrees = [0, 20, 40, 60, 80, 100]
    axis.set_xticks(degrees, ["per-\ntensor", *map(str, degrees[1:])])
    axis.set_xlabel("fusion degree (%)")
    axis.set_ylim(0)
    axis.set_title(FUSED_PANELS[model], loc="left", fontweight="bold")
    axis.grid(axis="y")


FIG2 = Figure(
    "ssfusion.fig2",
    "Fig. 2: share of time spent on sparsification, by fusion degree",
    _fig2,
    _fig2_verdicts,
    needs={"experiment": "missing_rate"},
    command=SHORT,
    said=_fig2_finding,
    notes=(
        "The paper's other curve, quality by fusion degree, is drawn from long runs: `ssfx figures "
        "ssfusion.fig2.quality`.",
        "Our share is that of a step on two CPU ranks, the paper's that of training on eight V100S: levels do not "
        "compare.",
    ),
)


# ---- Table I: tensors of which nothing is sent, by fusion degree -----------------------------------------------------

TRAINED = "vgg_small_cifar10"
"""The model of long runs, whose rates are means over all of a training; it is in no verdict."""
WHOLE = "resnet152_digits"
"""The model whose tensors have the sizes of the paper's."""
WHOLE_SAID = (
    "ResNet-152 has all its 467 tensors at full size, on 8x8 digits instead of CIFAR-100 and with two workers instead "
    "of eight, from random weights. With error feedback the rate falls from step to step, and the paper does not say "
    "of which steps its rates are."
)
DENSITY = 0.01
"""The paper's."""


def _table1(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return the table: a line per fusion degree, per model the paper's column and ours by memory."""
    # One line per fusion degree: per model the paper's rate and ours, by memory.
    rates = _rates(rows)
    degrees = sorted({degree for found in rates.values() for degree in found})
    table = []
    for degree in degrees:
        line: dict[str, Any] = {"degree": f"{degree:g} %" if degree else "per-tensor"}
        for model, found in rates.items():
            claim = _rate_claim(model, degree)
            printed = f"{claim.bounds[0]:.1f}" if claim and claim.bounds else "-"
            if model != TRAINED:
                line[f"paper | {STAND_INS.get(model, model)}"] = printed if degree else printed.replace("0.0", "0")
            for memory in sorted({memory for one in found.values() for memory in one}):
                value = found.get(degree, {}).get(memory)
                absent = NO_ROW if model == TRAINED else "-"
                line[f"{model} | memory {memory}"] = absent if value is None else f"{value:.1f}" if value else "0"
        table.append(line)
    if not table:
        return None
    columns = {"degree": "fusion degree"}
    for key in table[0]:
        if key != "degree":
            columns[key] = key.replace(" | memory none", "\nno residual").replace(" | ", "\n").replace("memory ", "")
    rows = _shown(rows)
    origin = (
        f"{where(rows)}; ResNet-152 on digits, a narrow BERT-large: two workers, random weights; "
        "VGG on CIFAR-10: a whole training."
    )
    return draw_table(figure.title, columns, table, origin=origin, used=rows)


def _table1_finding(rows: list[Row]) -> str:
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


def _table1_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return a verdict on rates of zero; others after steps from random weights, and their range, do not compare."""
    found = []
    rates = _rates(rows)
    for claim in claims_of("ssfusion.table1"):
        model = next((name for name, theirs in STAND_INS.items() if theirs == claim.conditions.get("model")), "")
        ours = rates.get(model, {})
        asked = claim.conditions.get("fusion_degree", 0)
        wanted = [float(degree) for degree in (asked if isinstance(asked, list) else [asked])]
        at = wanted if set(wanted) <= set(ours) else []
        if not at or claim.bounds is None:
            continue
        values = [value for degree in at for value in ours[degree].values()]
        here = (min(values), max(values))
        said = WHOLE_SAID if model == WHOLE else "Our BERT-large has narrower tensors."
        if claim.bounds == (0.0, 0.0):
            one = compared(claim.id, claim.bounds, here, unit="%", source="measured")
            found.append(replace(one, reason=said, command=SHORT, cost=COST))
        else:
            words = compared(claim.id, claim.bounds, here, unit="%").ours
            found.append(Verdict(claim.id, "not comparable", words, "measured", "", said, SHORT, COST))
    return found


def _rates(rows: Sequence[Row]) -> Percents:
    """Return median rates in percent."""
    own = [row for row in _shown(rows) if row.case.world_size > 1]
    return by_fusion(own, lambda row: 100 * metric(row, "tensor_missing_rate"))


def _shown(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.case.experiment != LONG or _like_the_paper(row)]


def _like_the_paper(row: Row) -> bool:
    """Return whether a long run is of TRAINED with the compressor and the density of the paper."""
    case = row.case
    plain = set(case.scheme_options) <= {"fusion_degree"} and case.memory in ("residual", "none")
    return case.model == TRAINED and (case.compressor, case.density) == ("dgc", DENSITY) and plain


def _rate_claim(model: str, degree: float) -> PaperClaim | None:
    subject = f"multi-tensor({degree:g})" if degree else "per-tensor"
    for claim in claims_of("ssfusion.table1"):
        if (claim.subject, claim.conditions.get("model")) == (subject, STAND_INS.get(model)):
            return claim
    return None


TABLE1 = Figure(
    "ssfusion.table1",
    "Table I: tensors of which nothing is sent, by fusion degree (percent of the tensors)",
    _table1,
    _table1_verdicts,
    needs={"experiment": ("missing_rate", LONG).__contains__},
    command=SHORT,
    said=_table1_finding,
    notes=(
        f"{WHOLE_SAID} BERT-large has all its tensors but narrower ones: only the trend counts.",
        "A small VGG, with 12 tensors, was trained for 2,000 steps on four workers: it shows what training does to the "
        "rate, not how high it is.",
        "A fusion degree of n percent: n percent of the tensors, counted from the output layer, are compressed "
        "jointly.",
    ),
)
