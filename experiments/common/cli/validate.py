"""`ssfx validate`: how far the simulator can be trusted, from recorded and published ground truth.

Every goal of validation is shown with what was found, met or missed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from experiments.common.validation.exchanges import NAME as EXCHANGES
from experiments.common.validation.gains import HEADINGS, TITLE, answers, lines, log_error, right_signs
from experiments.common.validation.gains import NAME as GAINS
from experiments.common.validation.groups import Group
from experiments.common.validation.one_gpu import COMPRESSORS, STEPS
from experiments.common.validation.quality import BY_NETWORK, BY_RATIO
from experiments.common.validation.recorded import PARTS
from experiments.common.validation.rounds import NAME as ROUNDS
from experiments.common.validation.scores import Scores, percent
from ssfx.cli.terminal import print_table, say
from ssfx.core.errors import ConfigError, unknown

BLIND = "recorded"
"""Name of the group of recorded runs that are simulated from calibration alone."""

MOST_ERROR = {BLIND: 0.05, "ACP-SGD times": 0.08, "MergeComp": 0.07}
"""Greatest mean error that a group should have."""
MOST_BEYOND = 0.15
"""Greatest mean error of the part of recorded iterations beyond compute, simulated from calibration alone."""
LEAST_ORDERED = 0.85
"""Least share of right orderings of all published groups together."""
MOST_LOG_ERROR, LEAST_SIGNS = 0.25, 0.90
"""Greatest mean |log ratio| of published gains, and the least share of them whose sign is right."""


@dataclass(frozen=True)
class Goal:
    """A limit for an error (at_most) or for a share that is right (at least), and what was found."""

    what: str
    limit: float
    found: float
    at_most: bool = True
    percent: bool = True

    @property
    def met(self) -> bool:
        """True when what was found keeps the limit."""
        return self.found <= self.limit if self.at_most else self.found >= self.limit

    def __str__(self) -> str:
        word = "at most" if self.at_most else "at least"
        if not self.percent:
            return f"{self.what} {word} {self.limit:g}: {self.found:.2f}"
        return f"{self.what} {word} {100 * self.limit:.0f} %: {100 * self.found:.1f} %"


def goals(groups: Sequence[Group]) -> list[Goal]:
    """Return the goals about `groups`; those about other groups are left out."""
    found = []
    for group in groups:
        if group.name in MOST_ERROR:
            found.append(Goal(f"mean error, {group.name}", MOST_ERROR[group.name], group.total.mean))
        if group.name == BLIND and (beyond := group.beyond()):
            found.append(Goal(f"mean error, {group.name}, part beyond compute", MOST_BEYOND, beyond.mean))
        if group.name == TITLE:
            found.append(Goal(f"mean |log ratio|, {TITLE}", MOST_LOG_ERROR, log_error(answers()), percent=False))
            found.append(Goal(f"right signs, {TITLE}", LEAST_SIGNS, right_signs(answers()), at_most=False))
    right, of = orderings(published(groups))
    if of:
        found.append(Goal("right orderings, published", LEAST_ORDERED, right / of, at_most=False))
    return found


def published(groups: Sequence[Group]) -> list[Group]:
    """Return the groups of published numbers."""
    others = (BLIND, EXCHANGES, STEPS, COMPRESSORS, BY_NETWORK, BY_RATIO, ROUNDS, TITLE)
    return [group for group in groups if not group.name.startswith(others)]


def orderings(groups: Sequence[Group]) -> tuple[int, int]:
    """Return how many orderings come out right, and of how many that matter."""
    return sum(group.total.ordered for group in groups), sum(group.total.orderings for group in groups)


_MOST_INVERSIONS = 12


@click.command()
@click.argument("groups", nargs=-1, metavar="[recorded|published|exchanges|gpu|quality|rounds|gains]...")
@click.option("--detail", is_flag=True, help="Also every set's scores, what came out inverted, and every prediction.")
@click.option("--parts", is_flag=True, help="Also the parts of recorded iterations, simulated and actual.")
@click.option("--json", "as_json", is_flag=True, help="Print scores of all groups and sets, and goals, as JSON.")
def validate(groups: tuple[str, ...], detail: bool, parts: bool, as_json: bool) -> None:
    """Predict times that the simulator was not calibrated on, and say how wrong it is.

    recorded: real and emulated runs on the machine that the shipped systems were measured on. published: times that
    papers print. exchanges: formulas of links, against public logs of nccl-tests. gpu: nominal times of steps and of
    compressors, against what one H200 took. quality: the law of extra steps, against long runs that it has not seen.
    rounds: bandwidths that local updates need, against a published simulation.
    gains: what others gained by a method over dense training, against the simulated gain of the same words.
    """
    from experiments.common.validation.ground_truth import NAMES, load

    for name in groups:
        if name not in NAMES:
            raise unknown("group", name, NAMES)
    if parts and groups and "recorded" not in groups:
        raise ConfigError("--parts is about recorded runs, which were not asked for; add recorded or drop --parts")
    if as_json and (detail or parts):
        raise ConfigError("--json holds the scores of all sets; drop --detail and --parts")
    found = [group for name in dict.fromkeys(groups or NAMES) for group in load(name)]
    if as_json:
        reached = [
            {"goal": one.what, "at_most": one.at_most, "limit": one.limit, "found": one.found, "met": one.met}
            for one in goals(found)
        ]
        click.echo(json.dumps({"groups": list(map(_plain, found)), "goals": reached}))
        return
    _summary(found)
    for group in found:
        if detail:
            click.echo()
            _show(group)
        if parts and group.comparisons:
            click.echo()
            # One line a run: simulated / actual milliseconds of every part.
            rows = [
                (one.panel, one.row.case.scheme, *(f"{1e3 * a:.0f} / {1e3 * b:.0f}" for a, b in one.parts().values()))
                for one in group.comparisons
            ]
            headings = tuple(f"{name.removesuffix('_s').replace('_', ' ')} [ms]" for name in PARTS)
            print_table(("panel", "scheme", *headings), rows, right=set(headings))
    if GAINS in groups:
        click.echo()
        print_table(HEADINGS, lines(), right={"theirs", "ours", "ratio"})
    if not detail:
        click.echo()
        say("every set of each group, reasons and predictions: ssfx validate --detail", "  ", "")


def _summary(groups: Sequence[Group]) -> None:
    """Print the scores of recorded runs, those of each published group, and which goals are met."""
    for group in groups:
        if beyond := group.beyond():
            total, how = group.total, "step by step" if group.comparisons else "blind"
            say(
                f"{how}: simulated times of {total.count} recorded runs are {100 * total.mean:.1f} % off on average, "
                f"{100 * beyond.mean:.0f} % in the part beyond compute",
                "  ",
                "",
                bold=how == "blind",
            )
    if printed := published(groups):
        columns = ("published", "n", "mean error", "of no effect", "largest", "orderings right")
        rows = [
            (
                group.name,
                str(total.count),
                percent(total.mean),
                percent(group.no_effect()),
                percent(total.maximum, ".0f"),
                f"{total.ordered} of {total.orderings}",
            )
            for group, total in ((group, group.total) for group in printed)
        ]
        click.echo()
        print_table(columns, rows, right=set(columns[1:]))
        say("of no effect: the mean error of a simulator in which no method changes a step", "  ", "")
    for group in groups:
        if group.name == EXCHANGES:
            _sets_of(group, "formulas of exchanges")
        elif group.name == ROUNDS:
            _sets_of(group, "rounds, published simulation")
        elif group.name in (STEPS, COMPRESSORS, BY_NETWORK, BY_RATIO, TITLE):
            kind = "nominal" if group.name in (STEPS, COMPRESSORS) else "blind"
            _sets_of(group, TITLE if group.name == TITLE else f"{kind}, {group.name}")
            worst = group.total.worst
            say(f"worst: {worst.panel}, {100 * worst.error:+.0f} %", "    ", "  ")
            for note in group.notes:
                say(note, "    ", "  ")
    if named := goals(groups):
        click.echo()
        click.secho("goals", bold=True)
        for goal in named:
            click.secho(f"  {'met' if goal.met else 'missed':6}  {goal}", fg="green" if goal.met else "yellow")


def _sets_of(group: Group, heading: str) -> None:
    """Print the scores of a group's sets; of ratios over dense training also what no effect would be scored."""
    beside = ("of no effect",) if group.over_dense else ()
    columns = (heading, "n", "mean error", *beside, "median", "largest", "bias")
    rows = [
        (
            name,
            str(one.count),
            percent(one.mean),
            *(percent(group.no_effect(name)) for _ in beside),
            percent(one.median),
            percent(one.maximum, ".0f"),
            percent(one.bias, "+.0f"),
        )
        for name, one in group.scores()
    ]
    click.echo()
    print_table(columns, rows, right=set(columns[1:]))


def _plain(group: Group) -> dict[str, Any]:
    """Return the scores of a group and of its sets as what JSON can hold."""
    sets = {name: _plain_scores(group, name, scores) for name, scores in group.scores()}
    return {
        "name": group.name,
        "title": group.title,
        "calibrated_on": group.calibrated_on,
        "tested_on": group.tested_on,
        "unit": group.unit,
        **sets.pop("all"),
        "sets": sets,
        "notes": list(group.notes),
    }


def _plain_scores(group: Group, name: str, scores: Scores) -> dict[str, Any]:
    beyond = group.beyond(name)
    return {
        "count": scores.count,
        "mean": scores.mean,
        "median": scores.median,
        "max": scores.maximum,
        "bias": scores.bias,
        "tau": scores.tau,
        "orderings": {"right": scores.ordered, "of": scores.orderings},
        "beyond_compute": beyond and {"count": beyond.count, "mean": beyond.mean, "median": beyond.median},
        "no_effect": group.no_effect(name),
    }


def _show(group: Group) -> None:
    """Print every prediction of a group, the scores of its sets, what came out inverted, and its notes."""
    click.secho(group.title, bold=True)
    say(f"calibrated on: {group.calibrated_on}", "    ", "  ")
    say(f"tested on: {group.tested_on}", "    ", "  ")
    rows = [
        (
            pair.panel,
            pair.label,
            *(
                f"{1e3 * value:.1f} ms" if group.unit == "s" else f"{value:.3g}{group.unit}"
                for value in (pair.predicted, pair.actual)
            ),
            percent(pair.error, "+.1f"),
            "extrapolated" if pair.extrapolated else "",
            pair.claim,
        )
        for pair in group.pairs
    ]
    print_table(
        ("panel", "what", "simulated", "actual", "error", "", "claim"), rows, right={"simulated", "actual", "error"}
    )
    columns = ("set", "n", "mean", "of no effect", "beyond compute", "median", "max", "bias", "tau", "orderings right")
    lines = [(name, *group.cells(name, scores, ".1f", "+.1f")) for name, scores in group.scores()]
    print_table(columns, lines, right=set(columns[1:]))
    total = group.total
    click.echo(f"  worst: {total.worst.panel}, {total.worst.label}: {100 * total.worst.error:+.1f} %")
    for one in total.inversions[:_MOST_INVERSIONS]:
        say(
            f"inverted: {one.panel}: {one.slower} is {100 * one.gap:.0f} % above {one.faster}, "
            f"simulated {-100 * one.predicted_gap:.0f} % below",
            "    ",
            "  ",
        )
    if len(total.inversions) > _MOST_INVERSIONS:
        click.echo(f"  and {len(total.inversions) - _MOST_INVERSIONS} more")
    for note in group.notes:
        say(note, "    ", "  ")
