"""Steps of published methods read from simulated rows, and the verdicts on claims that follow from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.simulated import error_of
from experiments.common.claims.verdicts import Outcome, Verdict, outcome_of_order
from experiments.common.evaluation.judging import held, says
from experiments.common.evaluation.step_plots import Bar, Bars
from experiments.common.figures.auto import AUTO
from experiments.common.validation.published_steps import (
    PaperMethod,
    PaperSetting,
    PaperStep,
    Prediction,
    Steps,
    Timed,
    method,
)
from ssfx.compressors import build
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import RunError
from ssfx.core.rows import Row
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.schemes import schemes
from ssfx.schemes.base import SchemeOptions

Key = tuple[Any, ...]
T = TypeVar("T")


class NoRow(RunError):
    """No row says what a step of this method takes there."""


@dataclass
class RowSteps:
    """The steps that simulated rows of one calibration hold; see `published_steps.Steps`."""

    rows: dict[Key, Row]
    alone: dict[Key, Row]

    def step(self, method: PaperMethod, at: PaperSetting) -> PaperStep:
        """Return one step of a method; NoRow where none was simulated."""
        metrics = self.row(method, at).metrics
        names = ("iteration_s", "exposed_comm_s", "comm_s", "sparsify_s")
        whole, exposed, comm, sparsify = (float(metrics[name] or 0.0) for name in names)
        return PaperStep(whole, exposed, comm, sparsify)

    def row(self, method: PaperMethod, at: PaperSetting) -> Row:
        """Return the row of a method; NoRow where none was simulated."""
        place = at.cluster, _cluster(at).world_size, at.model, at.batch_size
        key = (*place, *_how(method.scheme, method.options))
        if key not in self.rows:
            changed = "".join(f" {name}={value}" for name, value in at.changed)
            raise NoRow(f"no simulated row of {method.scheme} for {at.model} on {at.cluster}{changed}")
        return self.rows[key]

    def alone_s(self, at: PaperSetting) -> float:
        """Return the iteration of one device alone."""
        key = at.cluster, at.model, at.batch_size
        if key not in self.alone:
            raise NoRow(f"no simulated row of one device alone for {at.model} on {at.cluster}")
        return float(self.alone[key].metrics["iteration_s"] or 0.0)


def by_calibration(rows: Iterable[Row]) -> dict[str, RowSteps]:
    """Return the steps of simulated rows, calibration by calibration; of one case twice, the newest row counts."""
    by_kind: dict[str, RowSteps] = {}
    for row in sorted(simulated_rows(rows), key=lambda row: row.origin.date):
        case = row.case
        steps = by_kind.setdefault(case.costs, RowSteps({}, {}))
        if case.world_size == 1:
            steps.alone[case.cluster.name, case.model, case.batch_size] = row
        if set(case.cluster.changes) <= {"nodes", "devices_per_node"}:
            place = case.cluster.name, case.world_size, case.model, case.batch_size
            steps.rows[(*place, *_how(case.scheme, tuple(sorted(case.plan_options.items()))))] = row
    return dict(sorted(by_kind.items()))


@lru_cache(maxsize=1 << 8)
def _cluster(at: PaperSetting) -> Cluster:
    return cluster_on(ClusterChoice(at.cluster, dict(at.changed)), None, "auto")


def auto_at(at: PaperSetting, **options: Any) -> Timed:
    """Return scheme=auto, which is no method of a paper, in a setting of one; it knows the nodes there."""
    cluster = _cluster(at)
    nodes = {"ranks_per_node": cluster.devices_per_node} if cluster.nodes > 1 else {}
    return method(AUTO, **options, **nodes), at


@lru_cache(maxsize=1 << 12)
def _how(scheme: str, options: tuple[tuple[str, Any], ...]) -> Key:
    """Return what equal methods share: the scheme's options with all defaults, and the compressor's."""
    # 1 - 0.99 is not quite 0.01.
    exact = {key: round(value, 9) if isinstance(value, float) else value for key, value in options}
    resolved = schemes[scheme].options(exact)
    spec = resolved.online().compressor
    if spec is None:
        return scheme, resolved, None
    compressor = build(spec)
    by_name: SchemeOptions = replace(resolved, compressor=compressor.name)  # type: ignore[call-arg]  # of dense ones too
    return scheme, by_name, compressor.options


def ours_as_stated(claim_id: str, value: float) -> float:
    """Return a predicted ratio or time in the unit in which the claim is stated; the inverse of what scores compare."""
    claim = claims_by_id()[claim_id]
    unit = claim.unit or ""
    if unit == "ms":
        return 1e3 * value
    if claim.metric == "time_reduction":
        return 1 - value
    if claim.metric == "scaling_factor" or unit.startswith("x"):
        return value
    return (value - 1) * {"fraction": 1, "percent": 100}[unit]


CLOSE = 0.05
"""Relative difference within which a simulated number counts as the printed one, of a gain the ratio of times."""
HALF = 0.5
"""Share of a stated gain by which ours may differ: a method without any effect never has the gain that is stated."""


def judge_predictions(rows: Sequence[Row], predictions: Iterable[Prediction]) -> list[Verdict]:
    """Return, for each calibration, a verdict on every prediction whose rows are there.

    A claim of several predictions, as a gain over either of two, is held with the range of them. A simulated number
    agrees if it is within CLOSE of the printed one; of a gain, the ratio of times is what must be, and the gain must be
    within HALF of the stated one.
    """
    listed = list(predictions)
    verdicts = []
    for calibration, steps in by_calibration(rows).items():
        values: dict[str, list[float]] = {}
        for prediction in listed:
            with suppress(NoRow):
                value = prediction.value(steps)  # first: a claim without a row must not be listed
                values.setdefault(prediction.claim, []).append(value)
        for claim_id, predicted in values.items():
            low, high = sorted(ours_as_stated(claim_id, value) for value in (min(predicted), max(predicted)))
            stated = next(prediction.stated(claim_id) for prediction in listed if prediction.claim == claim_id)
            verdicts.append(
                held(
                    claim_id,
                    (low, high),
                    tolerance=_slack(claim_id, stated),
                    source="simulated",
                    calibration=calibration,
                )
            )
    return verdicts


def _slack(claim_id: str, stated: float) -> float:
    """Return the relative difference from the printed number within which ours agrees."""
    claim = claims_by_id()[claim_id]
    slack = CLOSE * stated
    if claim.unit != "ms" and claim.metric != "scaling_factor":
        slack = min(slack, HALF * abs(stated - 1))
    slack *= {"ms": 1e3, "percent": 100.0}.get(claim.unit or "", 1.0)
    return slack / (abs(ours_as_stated(claim_id, stated)) or 1.0)


SORTS_NOTHING = "the claim rests on sorting; our Top-k finds its threshold by histogram and sorts nothing"


Rule = Callable[[Steps], tuple[Outcome | bool | list[float], str]]
"""Gives whether an ordering holds, or the leads of its pairs, and what is said of it."""


def judge_orders(rows: Sequence[Row], rules: dict[str, Rule]) -> list[Verdict]:
    """Return, for each calibration, a verdict on every ordering whose rows are there."""
    verdicts = []
    for calibration, steps in by_calibration(rows).items():
        for claim_id, rule in rules.items():
            with suppress(NoRow):
                holds, words = rule(steps)
                why = ""
                if isinstance(holds, list):
                    holds, why = outcome_of_order(holds, error_of(calibration, claim_id))
                verdicts.append(says(claim_id, holds, words, why, source="simulated", calibration=calibration))
    return verdicts


def in_all(words: str, places: Callable[[Steps], Iterable[float]]) -> Rule:
    """Return the rule of an ordering that must hold in every place, from its lead there: the share by which it holds.

    `words` say in how many of how many it does.
    """

    def rule(steps: Steps) -> tuple[list[float], str]:
        leads = list(places(steps))
        return leads, words.format(sum(lead > 0 for lead in leads), len(leads))

    return rule


def simulated_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of simulated steps."""
    return [row for row in rows if row.case.calibration and not row.case.virtual]


def rows_by_calibration(rows: Sequence[Row], where: Timed) -> dict[str, Row]:
    """Return the row of one step of each calibration that has it."""
    return values_by_calibration(rows, lambda steps: steps.row(*where))


def values_by_calibration(rows: Sequence[Row], value: Callable[[RowSteps], T]) -> dict[str, T]:
    """Return what `value` gives from the rows of each calibration that has them."""
    values = {}
    for calibration, steps in by_calibration(rows).items():
        with suppress(NoRow):
            values[calibration] = value(steps)
    return values


def prediction_bars(
    rows: Sequence[Row],
    predictions: Iterable[Prediction],
    title: str,
    colours: Mapping[str, str],
    *,
    logarithmic: bool = False,
) -> Bars:
    """Return a panel of ratios: what the text prints as marks, and ours as bars; `colours` by label, grey otherwise."""
    bars = []
    for prediction in predictions:
        paper = prediction.stated(prediction.claim)
        colour = next(
            (colours[word] for word in sorted(colours, reverse=True) if prediction.label.startswith(word)), "#9a9a9a"
        )
        label = prediction.label.replace(", ", "\n").replace(" over ", "\nover ")
        bars.append(Bar(label, colour, values_by_calibration(rows, prediction.value), (paper, paper)))
    return Bars(title, bars, "ratio (x)", 1.0, logarithmic)
