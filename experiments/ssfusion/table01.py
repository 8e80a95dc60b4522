"""SSFusion Table I: the share of tensors of which nothing is sent, by fusion degree, published and measured here."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from ssfx.claims.ledger import PaperClaim, ledgers
from ssfx.figures.style import CAPTION, COLUMN_IN, caption_text, draw_table, facts, save, style
from ssfx.results.comparisons import Panel, Spread, panels
from ssfx.results.rows import Row
from ssfx.workloads import models

NAME = "ssfusion.table01"
TITLE = "tensors of which nothing is sent, by fusion degree"
CLAIMS = ("ssfusion.table1",)
NEEDS = {"experiment": "missing_rate"}
COMMAND = "ssfx run experiment=missing_rate preset=short"

COUNTERPARTS = {"resnet152_digits": "ResNet-152", "bert_large_narrow": "BERT-large"}
"""The model of the paper's table that a model here stands for."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table in percent: one line per scheme and fusion degree, two columns per model."""
    shown = panels(rows)
    if not shown:
        return []
    import matplotlib.pyplot as plt

    tables = [lines(panel) for panel in shown]
    counted = sorted({str(panel.case.steps - panel.case.warmup_steps) for panel in shown})
    text = [
        "Percent of the tensors of which a worker sent nothing in a step. Published: the paper's Table I, on CIFAR-100 "
        f"and SQuAD. Here: mean over {' or '.join(counted)} steps after warm-up of rank 0, from random weights.",
        "fused_all n%: n percent of the tensors, counted from the output layer, are compressed jointly; the memory "
        "stands before it where there are several.",
        *(f"{model}: {models[model].summary}." for model in dict.fromkeys(panel.case.model for panel in shown)),
        *facts(shown, spread=False),
    ]
    width_in = 2 * COLUMN_IN
    below = caption_text(text, width_in)
    header, cells = _cells(shown, tables)
    with style():
        height_in = 0.5 + 0.16 * len(cells) + 0.11 * (1 + below.count("\n"))
        figure, axis = plt.subplots(figsize=(width_in, height_in), layout="constrained")
        figure.supxlabel(below, **CAPTION)
        first, other = 0.22, 0.78 / (len(header) - 1)
        draw_table(axis, header, cells, [first, *[other] * (len(header) - 1)])
        return save(figure, NAME, [line for table in tables for line in table], rows, out)


def finding(rows: list[Row]) -> str:
    """Return, per model, the rates by fusion degree, the published ones, and which schemes lose no tensor at all."""
    parts = []
    for panel in panels(rows):
        table = lines(panel)
        some = [line for line in table if line["missing_percent"]]
        rates = [
            f"{name} {_series(list(group))}" for name, group in groupby(some, key=lambda line: _name(line["scheme"]))
        ]
        compared = {line["fusion_degree"]: line for line in table if line["fusion_degree"] and line["claim"]}
        published = [f"published {_series(list(compared.values()), 'published_percent')}"] if compared else []
        none = ", ".join(line["scheme"] for line in table if not line["missing_percent"]) or "none"
        parts.append(f"{panel.case.model}: {', '.join([*rates, *published])}, exactly 0: {none}")
    return "percent of tensors of which nothing is sent: " + "; ".join(parts) if parts else "no two workers"


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line per scheme, those of fused_all in the order of their fusion degree."""
    found = []
    names = [_name(label) for label in panel.bars]
    for label, rows in sorted(panel.bars.items(), key=lambda bar: (names.index(_name(bar[0])), _degree(bar[1][0]))):
        spread = Spread.of(rows, "tensor_missing_rate")
        degree, claim = _degree(rows[0]), _claim(rows[0])
        fused = rows[0].case.scheme == "fused_all"
        found.append(
            {
                **panel.columns(),
                "scheme": f"{_name(label)} {degree:g}%" if fused else label,
                "fusion_degree": degree if fused else "",
                "missing_percent": 100 * spread.median,
                "published_percent": claim.bounds[0] if claim and claim.bounds else "",
                "claim": claim.id if claim else "",
                "steps": panel.case.steps - panel.case.warmup_steps,
                "runs": spread.runs,
            }
        )
    return found


def _name(label: str) -> str:
    """Return the label of a variant without its fusion degree."""
    return " ".join(word for word in label.split() if not word.startswith("fusion_degree=") and not word.endswith("%"))


def _series(table: list[dict[str, Any]], key: str = "missing_percent") -> str:
    values = "/".join(f"{line[key]:.3g}" for line in table)
    degrees = "/".join(f"{line['fusion_degree']:g}" for line in table if line["fusion_degree"])
    return f"{values} at {degrees}%" if degrees else values


def _degree(row: Row) -> float:
    """Return the percentage of tensors that are compressed jointly; 0 for a scheme that compresses none so."""
    return float(row.case.scheme_options.get("fusion_degree", 100)) if row.case.scheme == "fused_all" else 0.0


def _claim(row: Row) -> PaperClaim | None:
    """Return the published value for the same scheme, degree and compression on the counterpart of the row's model."""
    case = row.case
    subject = f"multi-tensor({_degree(row):g})" if case.scheme == "fused_all" else case.scheme.replace("_", "-")
    asked = {"model": COUNTERPARTS.get(case.model), "density": case.density, "compressor": case.compressor}
    for claim in (claim for ledger in ledgers() for claim in ledger.claims):
        if claim.artifact == CLAIMS[0] and claim.subject == subject and asked.items() <= claim.conditions.items():
            return claim
    return None


def _cells(shown: list[Panel], tables: list[list[dict[str, Any]]]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the drawing: a line per scheme; per model the published column, then ours."""
    columns: list[tuple[str, dict[str, str]]] = []
    for model in dict.fromkeys(panel.case.model for panel in shown):
        own = [(panel, table) for panel, table in zip(shown, tables, strict=True) if panel.case.model == model]
        if theirs := COUNTERPARTS.get(model):
            compared = [line for _, table in own for line in table if line["claim"]]
            columns.append((f"{theirs}\npublished", _column(compared, "published_percent")))
        for panel, table in own:
            title = f"{model}\n{panel.kind}, {table[0]['steps']} steps"
            columns.append((title, _column(table, "missing_percent")))
    schemes = dict.fromkeys(line["scheme"] for table in tables for line in table)
    cells = [[name, *(column.get(name, "-") for _, column in columns)] for name in schemes]
    return ["scheme", *(title for title, _ in columns)], cells


def _column(table: list[dict[str, Any]], key: str) -> dict[str, str]:
    # A zero without decimals is exact.
    return {line["scheme"]: f"{line[key]:.1f}" if line[key] else "0" for line in table}
