"""`ssfx validate`: how far the simulator can be trusted, from recorded and published ground truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ssfx.validation import Scores
    from ssfx.validation.groups import Group

_MOST_INVERSIONS = 12


@click.command(short_help="Check the simulator against recorded runs and published times.")
@click.argument("groups", nargs=-1, metavar="[recorded|published]...")
@click.option("--detail", is_flag=True, help="List every prediction, not only the summary.")
@click.option("--parts", is_flag=True, help="List the parts of recorded iterations, simulated and actual.")
def validate(groups: tuple[str, ...], detail: bool, parts: bool) -> None:
    """Predict times that the simulator was not calibrated on, and say how wrong it is.

    recorded: real and emulated runs on the machine that the shipped systems were measured on. published: times that
    papers print.
    """
    from ssfx.core.errors import ConfigError, unknown
    from ssfx.validation.groups import NAMES, load, summary

    for name in groups:
        if name not in NAMES:
            raise unknown("group", name, NAMES)
    if parts and groups and "recorded" not in groups:
        raise ConfigError("--parts is about recorded runs, which were not asked for; add recorded or drop --parts")
    shown = []
    for name in dict.fromkeys(groups or NAMES):
        for group in load(name):
            _show(group, detail)
            if parts and group.comparisons:
                _show_parts(group)
            shown.append(group)
    if len(shown) > 1:
        click.secho(summary(shown), bold=True)


def _show(group: Group, detail: bool) -> None:
    click.secho(group.title, bold=True)
    click.echo(f"  calibrated on: {group.calibrated_on}")
    click.echo(f"  tested on: {group.tested_on}")
    if detail:
        rows = [
            (pair.panel, pair.label, _value(pair.predicted, group.unit), _value(pair.actual, group.unit),
             f"{100 * pair.error:+.1f} %", "extrapolated" if pair.extrapolated else "", pair.claim)
            for pair in group.pairs
        ]  # fmt: skip
        print_table(
            ("panel", "what", "simulated", "actual", "error", "", "claim"), rows, right={"simulated", "actual", "error"}
        )
    columns = ("set", "n", "mean", "median", "max", "bias", "tau", "inverted (of which > 5 %)")
    print_table(columns, [_line(name, scores) for name, scores in group.scores()], right=set(columns[1:]))
    total = group.total
    click.echo(f"  worst: {total.worst.panel}, {total.worst.label}: {100 * total.worst.error:+.1f} %")
    for one in total.telling[:_MOST_INVERSIONS]:
        click.echo(
            f"  inverted: {one.panel}: {one.slower} is {100 * one.gap:.0f} % above {one.faster}, "
            f"simulated {-100 * one.predicted_gap:.0f} % below"
        )
    if len(total.telling) > _MOST_INVERSIONS:
        click.echo(f"  and {len(total.telling) - _MOST_INVERSIONS} more; --detail lists every prediction")
    for note in group.notes:
        click.echo(f"  {note}")


def _show_parts(group: Group) -> None:
    """Print one line a run: simulated / actual milliseconds of every part."""
    from ssfx.validation.recorded import PARTS

    rows = [
        (one.panel, one.row.case.scheme, *(f"{1e3 * a:.0f} / {1e3 * b:.0f}" for a, b in one.parts().values()))
        for one in group.comparisons
    ]
    headings = tuple(f"{name.removesuffix('_s').replace('_', ' ')} [ms]" for name in PARTS)
    print_table(("panel", "scheme", *headings), rows, right=set(headings))


def _line(name: str, scores: Scores) -> Sequence[str]:
    tau = "-" if scores.tau is None else f"{scores.tau:.2f}"
    inverted = f"{len(scores.inversions)} ({len(scores.telling)})"
    numbers = (scores.mean, scores.median, scores.maximum)
    return (
        name, str(scores.count), *(f"{100 * value:.1f} %" for value in numbers), f"{100 * scores.bias:+.1f} %", tau,
        inverted,
    )  # fmt: skip


def _value(value: float, unit: str) -> str:
    return f"{1e3 * value:.1f} ms" if unit == "s" else f"{value:.3g}x"
