"""Shapes of figures of four papers: what is drawn of them, and the verdicts on all claims of an artifact."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND, RUNS
from experiments.common.evaluation.judging import ON_ONE_CORE, complete, not_comparable, paper_value
from experiments.common.evaluation.quality_curves import draw_curves
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.evaluation.step_plots import Bars, Lines, draw_panels, draw_parts
from experiments.common.figures.figure import Drawing, Figure, Judging
from experiments.common.figures.tables import COMPUTED, draw_table
from experiments.common.validation.published_steps import Prediction
from ssfx.core.rows import Row

Found = Callable[[list[Row]], Iterable[Verdict]]


@dataclass(frozen=True)
class Judged:
    """Verdicts on every claim of a figure's artifact.

    `found` gives verdicts of its own. Of `predictions`, a paper's, those about the artifact are held against simulated
    rows; `orders` are rules of orderings. `not_comparable` says why some of these claims compare nothing, and `reason`
    why the other claims have no verdict.
    """

    found: Found = lambda _: ()
    predictions: Callable[[], Iterable[Prediction]] = tuple
    orders: Mapping[str, Rule] = field(default_factory=dict)
    not_comparable: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    cost: str = ON_ONE_CORE

    def __call__(self, figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
        """Return the verdicts, in the ledger's order."""
        predicted = judge_predictions(rows, about(figure.name, self.predictions()))
        found = [*self.found(rows), *predicted, *judge_orders(rows, dict(self.orders))]
        found = not_comparable(found, self.not_comparable)
        return complete(figure.name, found, figure.command, reason=self.reason, cost=self.cost)


def long_figure(
    name: str, title: str, drawing: Drawing, judging: Judging, *, needs: Mapping[str, Any] | None = None,
    about: tuple[str, ...] | None = None, said: Callable[[list[Row]], str] | None = None,
    lacks: Callable[[list[Row]], Sequence[str]] | None = None, notes: tuple[str, ...] = (),
) -> Figure:  # fmt: skip
    """Return a figure of long runs; `needs` where it takes other rows too."""
    return Figure(
        name, title, drawing, judging, needs=needs or RUNS, command=COMMAND, about=about, said=said, lacks=lacks,
        notes=notes,
    )  # fmt: skip


def about(artifact: str, predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return the predictions of an artifact's claims."""
    own = {claim.id for claim in claims_of(artifact)}
    return [one for one in predictions if one.claim in own]


@dataclass(frozen=True)
class Panels:
    """Panels of bars and lines of simulated steps. `of` chooses the rows that the line of origin names."""

    panels: Callable[[list[Row]], Sequence[Bars | Lines]]
    of: Callable[[list[Row]], list[Row]] = list

    def __call__(self, figure: Figure, rows: list[Row], out: Path) -> list[Path]:
        """Write the panels that have a value."""
        own = self.of(rows)
        return draw_panels(figure.name, self.panels(rows), own, out)


@dataclass(frozen=True)
class Parts:
    """Stacked parts of an iteration: panel -> method -> calibration -> row."""

    parts: Callable[[list[Row]], Mapping[str, Mapping[str, Mapping[str, Row]]]]

    def __call__(self, figure: Figure, rows: list[Row], out: Path) -> list[Path]:
        """Write a panel of stacked bars for each."""
        return draw_parts(figure.name, self.parts(rows), rows, out)


@dataclass(frozen=True)
class Quality:
    """Quality in long runs, a panel a network; `words` name a method."""

    panels: Callable[[list[Row]], Sequence[Panel]]
    words: Callable[[str], str] = str

    def __call__(self, figure: Figure, rows: list[Row], out: Path) -> list[Path]:
        """Write curves on the left, final quality on the right."""
        return draw_quality(figure.name, figure.title, self.panels(rows), out, self.words)


@dataclass(frozen=True)
class Curves:
    """A column of the curves of long runs: medians over seeds by method, the range as a band, `set_to` as a dash."""

    methods: Callable[[list[Row]], Mapping[str, Sequence[Row]]]
    title: Callable[[Mapping[str, Sequence[Row]]], str]
    colours: Mapping[str, str]
    column: str
    ylabel: str
    set_to: float | None = None

    def __call__(self, figure: Figure, rows: list[Row], out: Path) -> list[Path]:
        """Write the curves."""
        own = self.methods(rows)
        return draw_curves(
            figure.name, self.title(own), own, self.colours, self.column, self.ylabel, out, set_to=self.set_to
        )


@dataclass(frozen=True)
class Claims:
    """A table of the figure's own verdicts, one line a claim. `of` chooses the rows that the numbers come from."""

    origin: str = COMPUTED
    of: Callable[[list[Row]], list[Row]] = list

    def __call__(self, figure: Figure, rows: list[Row], out: Path) -> list[Path]:
        """Write what the paper states beside what is computed here."""
        verdicts = figure.judge(rows)
        return draw_claims(figure.name, figure.title, verdicts, out, origin=self.origin, used=self.of(rows))


CONFIGURED = Claims("From the configuration of ssfx (conf/); no run.")
"""The settings that a paper states, beside what conf/ has."""


COLUMNS = {"what": "what the paper states", "paper": "paper", "here": "ssfx", "outcome": "outcome", "why": "why"}


def draw_claims(
    name: str, title: str, verdicts: Sequence[Verdict], out: Path, *, origin: str = COMPUTED, used: Sequence[Row] = ()
) -> list[Path]:
    """Write a table of the verdicts, one line a claim, and return the paths."""
    lines = [
        {
            "what": claims_by_id()[one.claim].statement,
            "paper": paper_value(claims_by_id()[one.claim]),
            "here": one.ours,
            "outcome": one.outcome,
            "why": one.reason,
            "claim": one.claim,
        }
        for one in verdicts
    ]
    shown = {key: heading for key, heading in COLUMNS.items() if any(line[key] for line in lines)}
    return draw_table(name, title, shown, lines, out, origin=origin, used=used)
