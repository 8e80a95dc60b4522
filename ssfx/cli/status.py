"""`ssfx status`: the papers' claims beside our numbers, and the runs, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import print_table

if TYPE_CHECKING:
    from ssfx.claims.evidence import Evidence
    from ssfx.claims.ledger import Ledger


@click.command(short_help="Show claims beside our numbers, and the runs.")
def status() -> None:
    """Show what our rows say about the papers' claims, and which runs are finished."""
    from ssfx.claims.evidence import evidence, run_counts
    from ssfx.claims.ledger import OUTCOMES, ledgers
    from ssfx.claims.simulated import verdict_counts
    from ssfx.core.paths import results_dir
    from ssfx.figures.discovery import discover
    from ssfx.results.store import Store

    store = Store(results_dir())
    rows = [*store.reference_rows(), *store.rows()]
    found = [entry for ledger in ledgers() for entry in evidence(ledger, rows)]
    counts = ("claims", *OUTCOMES, "unchecked")
    click.echo("What the papers claim, checked on paper: by shapes and algebra, without running anything")
    print_table(("paper", *counts), map(_checked, ledgers()), right=counts)
    click.echo("\nWhat our rows say about the claims that our experiments measure")
    print_table(("claim", "metric", "paper", "here", "origin", "runs", "verdict"), map(_judged, found), right=("runs",))
    if reasons := sorted({entry.why for entry in found if entry.why}):
        click.echo(f"not comparable with the paper's conditions: {'; '.join(reasons)}")
    said = [
        f"{calibration}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        for calibration, verdicts in verdict_counts(discover().values(), rows).items()
    ]
    if said:
        click.echo(f"simulated, {'; '.join(said)} (claim by claim in the CSV of the figures that ssfx figures draws)")
    for command in sorted({entry.command for entry in found}):
        metrics = sorted({entry.claim.metric for entry in found if entry.command == command})
        click.echo(f"to measure {' and '.join(metrics)}: {command}")
    counted = run_counts(store)
    for experiment, count in counted.items():
        half = count["half"] + count["new"]
        line = f"runs of {experiment}: {count['finished']} finished, {count['failed']} failed, {half} half-finished"
        click.secho(line, fg="red" if count["failed"] else None)
    if not counted:
        click.echo(f"no runs in {store.runs.parent.name}/ yet; {len(rows)} reference rows; start with: ssfx run")


def _checked(ledger: Ledger) -> Sequence[str]:
    verified = ledger.verified
    unchecked = len(ledger.claims) - sum(verified.values())
    return [ledger.paper, *map(str, (len(ledger.claims), *verified.values(), unchecked))]


def _judged(entry: Evidence) -> Sequence[str]:
    claim = entry.claim
    assert claim.bounds is not None
    unit = claim.unit or ""
    here = "-" if entry.low is None or entry.high is None else _range(entry.low, entry.high, unit)
    return claim.id, claim.metric, _range(*claim.bounds, unit), here, entry.how, str(entry.runs), entry.verdict


def _range(low: float, high: float, unit: str) -> str:
    scale = 100 if unit == "fraction" else 1
    sign = "+" if unit == "fraction" else ""
    ends = [f"{scale * value:{sign}.1f}" for value in (low, high)]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} .. {ends[1]} %"
