"""Artifacts of four papers: the verdicts on all claims of one, as a table too; figures of long runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from experiments.common.claims.ledger import PaperClaim, claims_by_id, claims_of
from experiments.common.claims.verdicts import ON_ONE_CORE, Outcome, Source, Verdict
from experiments.common.evaluation.gaps import COMMAND, RUNS
from experiments.common.evaluation.judging import absent, complete, held, paper_value, says
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import Picture
from experiments.common.figures.tables import COMPUTED, draw_table
from experiments.common.validation.published_steps import Prediction
from ssfx.core.rows import Row

Answer = float | str | tuple[float, float] | tuple[Outcome | bool, str] | Verdict | Iterable[Verdict]
"""Of one claim: a number or a range, held against the stated one; whether it holds, with words; words alone of what is
not comparable; or verdicts."""
Found = Callable[[list[Row]], Iterable[Verdict] | Mapping[str, Answer]]


@dataclass(frozen=True)
class Judged:
    """Verdicts on every claim of a figure's artifact.

    `found` gives verdicts of its own. Of `predictions`, a paper's, those about the artifact are held against simulated
    rows; `orders` are rules of orderings. `not_comparable` says why some of these claims compare nothing, and `reason`
    why the other claims have no verdict. `source` and `why` are said of answers whose claim has none in the ledger.
    """

    found: Found = lambda _: ()
    predictions: Callable[[], Iterable[Prediction]] = tuple
    orders: Mapping[str, Rule] = field(default_factory=dict)
    not_comparable: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    cost: str = ON_ONE_CORE
    source: Source = "computed"
    why: str = ""

    def __call__(self, figure: Figure, rows: list[Row]) -> Sequence[Verdict]:
        """Return the verdicts, in the ledger's order."""
        own_predictions = [one for artifact in figure.claims for one in about(artifact, self.predictions())]
        predicted = judge_predictions(rows, own_predictions)
        own = self.found(rows)
        if isinstance(own, Mapping):
            own = [verdict for claim, answer in own.items() for verdict in self._said(claims_by_id()[claim], answer)]
        found = [*own, *predicted, *judge_orders(rows, dict(self.orders))]
        why = self.not_comparable
        found = [
            replace(one, outcome="not comparable", reason=why[one.claim]) if one.claim in why else one for one in found
        ]
        return complete(figure.claims, found, figure.command, reason=self.reason, cost=self.cost)

    def _said(self, claim: PaperClaim, answer: Any) -> Iterable[Verdict]:
        source: Any = claim.source or self.source
        if isinstance(answer, Verdict):
            return [answer]
        if isinstance(answer, str):
            return [absent(claim.id, claim.not_comparable, "not comparable", answer)]
        if isinstance(answer, int | float) or (isinstance(answer, tuple) and not isinstance(answer[1], str)):
            return [held(claim.id, answer, tolerance=claim.tolerance, reason=claim.why, source=source)]
        if isinstance(answer, tuple):
            outcome, words = answer
            return [says(claim.id, outcome, words, claim.why or self.why, source=source)]
        return list(answer)


def both(one: bool, other: bool) -> Outcome:
    """Return the outcome of a claim of two halves."""
    return "agrees" if one and other else "partly" if one or other else "disagrees"


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
        reasons, origin = {line["why"] for line in lines}, self.origin
        if len(lines) > 1 and len(reasons) == 1 and (why := reasons.pop()):  # one sentence below in place of many
            del shown["why"]
            origin = f"{origin} {why}."
        return draw_table(figure.title, shown, lines, origin=origin, used=self.of(rows))


CONFIGURED = Claims("From the configuration of ssfx (conf/); no run.")
"""The settings that a paper states, beside what conf/ has."""
