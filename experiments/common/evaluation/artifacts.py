"""Artifacts of four papers: the verdicts on all claims of one, as a table too; figures of long runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.verdicts import ON_ONE_CORE, Verdict
from experiments.common.evaluation.gaps import COMMAND, RUNS
from experiments.common.evaluation.judging import complete, paper_value
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import Picture
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
        why = self.not_comparable
        found = [
            replace(one, outcome="not comparable", reason=why[one.claim]) if one.claim in why else one for one in found
        ]
        return complete(figure.name, found, figure.command, reason=self.reason, cost=self.cost)


long_figure = partial(Figure, needs=RUNS, command=COMMAND)
"""A figure of long runs; `needs` where it takes other rows too."""


def about(artifact: str, predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return the predictions of an artifact's claims."""
    own = {claim.id for claim in claims_of(artifact)}
    return [one for one in predictions if one.claim in own]


COLUMNS = {"what": "what the paper states", "paper": "paper", "here": "ssfx", "outcome": "outcome", "why": "why"}


@dataclass(frozen=True)
class Claims:
    """A table of the figure's own verdicts, one line a claim. `of` chooses the rows that the numbers come from."""

    origin: str = COMPUTED
    of: Callable[[list[Row]], list[Row]] = list

    def __call__(self, figure: Figure, rows: list[Row]) -> Picture:
        """Return what the paper states beside what is computed here."""
        lines = [
            {
                "what": claims_by_id()[one.claim].statement,
                "paper": paper_value(claims_by_id()[one.claim]),
                "here": one.ours,
                "outcome": one.outcome,
                "why": one.reason,
                "claim": one.claim,
            }
            for one in figure.judge(rows)
        ]
        shown = {key: heading for key, heading in COLUMNS.items() if any(line[key] for line in lines)}
        return draw_table(figure.title, shown, lines, origin=self.origin, used=self.of(rows))


CONFIGURED = Claims("From the configuration of ssfx (conf/); no run.")
"""The settings that a paper states, beside what conf/ has."""
