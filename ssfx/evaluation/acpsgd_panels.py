"""The methods of the ACP-SGD paper as its figures show them, from simulated rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssfx.evaluation.row_steps import rows_by_calibration, values_by_calibration
from ssfx.evaluation.step_plots import Bar, Line
from ssfx.results.rows import Row
from ssfx.validation.published_acpsgd import Setup, timed
from ssfx.validation.published_steps import Steps

LABELS = {
    "ssgd": "S-SGD", "signsgd": "Sign-SGD", "topk": "Top-k", "powersgd": "Power-SGD", "powersgd-star": "Power-SGD*",
    "acpsgd": "ACP-SGD",
}  # fmt: skip
COLOURS = {
    "ssgd": "#5f5f5f", "signsgd": "#74b06f", "topk": "#b8860b", "powersgd": "#a8324a", "powersgd-star": "#8c6bb1",
    "acpsgd": "#0072b2",
}  # fmt: skip


def bar(
    rows: Sequence[Row], name: str, setup: Setup, label: str = "", *, scale: float = 1.0,
    paper: tuple[float, float] | None = None,
) -> Bar:  # fmt: skip
    """Return the bar of one method's iteration time, in seconds times `scale`; variants have their method's colour."""
    values = values_by_calibration(rows, lambda steps: scale * iteration_s(steps, name, setup))
    return Bar(label or LABELS[name], COLOURS[name.partition("(")[0]], values, paper)


def line(
    rows: Sequence[Row], name: str, points: Sequence[tuple[float, Callable[[Steps], float]]], label: str = "",
    paper: Sequence[tuple[float, float]] = (),
) -> Line:  # fmt: skip
    """Return the line of one method over x, each point a value from steps; points without rows are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for x, value in points:
        for calibration, y in values_by_calibration(rows, value).items():
            found.setdefault(calibration, []).append((x, y))
    return Line(label or LABELS[name], COLOURS[name], found, paper)


def parts(rows: Sequence[Row], names: Sequence[str], model: str) -> dict[str, dict[str, Row]]:
    """Return method -> calibration -> row of one model, for stacked parts."""
    return {LABELS[name]: rows_by_calibration(rows, timed(name, Setup(model))) for name in names}


def iteration_s(steps: Steps, name: str, setup: Setup) -> float:
    """Return the iteration time of a method."""
    return steps.step(*timed(name, setup)).iteration_s
