"""The methods of the ACP-SGD paper as its figures show them, and scheme=auto beside them, from simulated rows."""

from collections.abc import Sequence

from experiments.common.evaluation.row_steps import auto_at, rows_by_calibration, values_by_calibration
from experiments.common.evaluation.step_plots import Bar, Line
from experiments.common.figures.auto import AUTO, BY_QUALITY, COLOUR, LABEL, NO_PRINTED_TIMES
from experiments.common.validation.published_acpsgd import Setup, timed
from experiments.common.validation.published_steps import Steps, Timed, Value
from ssfx.core.rows import Row
from ssfx.core.spec import name_of

NOTE = f"{BY_QUALITY} {NO_PRINTED_TIMES}"
"""Of every figure that shows AUTO."""

LABELS = {
    "ssgd": "S-SGD",
    "signsgd": "Sign-SGD",
    "topk": "Top-k",
    "powersgd": "Power-SGD",
    "powersgd-star": "Power-SGD*",
    "acpsgd": "ACP-SGD",
    AUTO: LABEL,
}
COLOURS = {
    "ssgd": "#5f5f5f",
    "signsgd": "#74b06f",
    "topk": "#b8860b",
    "powersgd": "#a8324a",
    "powersgd-star": "#8c6bb1",
    "acpsgd": "#0072b2",
    AUTO: COLOUR,
}


def bar(
    rows: Sequence[Row],
    name: str,
    setup: Setup,
    label: str = "",
    *,
    scale: float = 1.0,
    paper: tuple[float, float] | None = None,
) -> Bar:
    """Return the bar of one method's iteration time, in seconds times `scale`; variants have their method's colour."""
    values = values_by_calibration(_known(rows, name), lambda steps: scale * iteration_s(steps, name, setup))
    return Bar(label or LABELS[name], COLOURS[name_of(name)], values, paper)


def line(rows: Sequence[Row], name: str, points: Sequence[tuple[float, Value]]) -> Line:
    """Return the line of one method over x, each point a value from steps; points without rows are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for x, value in points:
        for calibration, y in values_by_calibration(_known(rows, name), value).items():
            found.setdefault(calibration, []).append((x, y))
    return Line(LABELS[name], COLOURS[name], found)


def parts(rows: Sequence[Row], names: Sequence[str], model: str) -> dict[str, dict[str, Row]]:
    """Return method -> calibration -> row of one model, for stacked parts."""
    return {LABELS[name]: rows_by_calibration(_known(rows, name), where(name, Setup(model))) for name in names}


def iteration_s(steps: Steps, name: str, setup: Setup) -> float:
    """Return the iteration time of a method."""
    return steps.step(*where(name, setup)).iteration_s


def where(name: str, setup: Setup) -> Timed:
    """Return a method of the paper, or AUTO, in one of the paper's set-ups."""
    return auto_at(setup.setting) if name == AUTO else timed(name, setup)


def _known(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows that may show a method: of auto none by times that papers print, see NO_PRINTED_TIMES."""
    return [row for row in rows if name != AUTO or not row.case.calibration.startswith("published")]
