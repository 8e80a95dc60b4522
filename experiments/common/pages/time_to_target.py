"""The generated part of docs/workloads.md: predicted times to a target beside runs that reached it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from experiments.common.pages.markdown import table
from experiments.common.validation.scores import Pair, score
from experiments.common.validation.time_to_target import REAL, predicted_times
from ssfx.advice.time_to_quality import way
from ssfx.core.rows import Row

HEADER = ("task", "scheme", "predicted s", "actual s", "range of the actual", "error")


def time_to_target_block(rows: Sequence[Row]) -> str:
    """Return how far predictions are off, and whether they order the schemes of a task, with a table of all."""
    pairs = predicted_times(rows)
    if not pairs:
        return f"*No such rows are committed yet; `ssfx run experiment={REAL}` makes them.*"
    found = score(pairs)
    near = sum(abs(pair.error) <= 0.15 for pair in pairs)
    together = score([Pair("all", f"{pair.panel} {pair.label}", pair.predicted, pair.actual) for pair in pairs])
    sentence = (
        f"{near} of {len(pairs)} are predicted within 15 %; the mean error is {100 * found.mean:.0f} %, "
        f"Kendall's tau of all {len(pairs)} is {together.tau or 0.0:.2f}."
    )
    cells = {(row.case.model, way(row.case)) for row in rows if row.case.experiment == REAL}
    if missing := sorted(cells - {(pair.panel, pair.label) for pair in pairs}):
        named = ", ".join(f"{model} with {scheme}" for model, scheme in missing)
        sentence += f" Not among them: {named}, whose runs mostly miss the target."
    return f"{sentence}\n\n{table(HEADER, list(map(_cells, pairs)))}"


def _cells(pair: Pair) -> tuple[str, ...]:
    spread = f"{100 * pair.spread:.0f} %" if pair.spread is not None and isfinite(pair.spread) else "not all got there"
    return (
        pair.panel, pair.label, f"{pair.predicted:.2f}", f"{pair.actual:.2f}", spread, f"{100 * pair.error:+.0f} %",
    )  # fmt: skip
