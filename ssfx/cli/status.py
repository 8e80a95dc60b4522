"""`ssfx status`: the papers' claims beside our numbers, and the runs, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from ssfx.status import Evidence


@click.command(short_help="Show claims beside our numbers, and the runs.")
def status() -> None:
    """Show what our rows say about the papers' claims, and which runs are finished."""
    from ssfx.cli.console import wide_console
    from ssfx.paths import results_dir
    from ssfx.results.claims import ledgers
    from ssfx.results.store import Store
    from ssfx.status import evidence, run_counts

    store = Store(results_dir())
    rows = [*store.reference_rows(), *store.rows()]
    console = wide_console()
    console.print(_ledgers())
    found = [entry for ledger in ledgers() for entry in evidence(ledger, rows)]
    console.print(_claims(found))
    for why in sorted({entry.why for entry in found if entry.why}):
        console.print(f"not comparable with the paper's conditions: {why}")
    for command in sorted({entry.command for entry in found}):
        metrics = sorted({entry.claim.metric for entry in found if entry.command == command})
        console.print(f"{', '.join(metrics)}: {command}", markup=False)
    counts = run_counts(store)
    if not counts:
        console.print(f"no runs in {store.runs.parent.name}/ yet; {len(rows)} reference rows; start with: ssfx run")
    for experiment, count in counts.items():
        console.print(
            f"runs of {experiment}: {count['finished']} finished, {count['failed']} failed, "
            f"{count['half'] + count['new']} half-finished",
            style="red" if count["failed"] else None,
        )


def _ledgers() -> Table:
    from rich.table import Table

    from ssfx.results.claims import OUTCOMES, ledgers

    table = Table(title="claims, and static checks from shapes and algebra", title_justify="left", box=None)
    table.add_column("paper")
    for name in ("claims", *OUTCOMES, "unchecked"):
        table.add_column(name, justify="right")
    for ledger in ledgers():
        verified = ledger.verified
        unchecked = len(ledger.claims) - sum(verified.values())
        cells = [len(ledger.claims), *(verified[outcome] for outcome in OUTCOMES), unchecked]
        table.add_row(ledger.paper, *map(str, cells))
    return table


def _claims(found: list[Evidence]) -> Table:
    from rich.table import Table

    table = Table(title="claims that our experiments speak to", title_justify="left", box=None)
    for name in ("claim", "paper", "here", "how", "N", "verdict"):
        table.add_column(name, justify="right" if name == "N" else "left", no_wrap=True)
    for entry in found:
        assert entry.claim.bounds is not None
        unit = entry.claim.unit or ""
        here = "-" if entry.low is None or entry.high is None else _range(entry.low, entry.high, unit)
        table.add_row(
            entry.claim.id, _range(*entry.claim.bounds, unit), here, entry.how, str(entry.runs), entry.verdict
        )
    return table


def _range(low: float, high: float, unit: str) -> str:
    scale = 100 if unit == "fraction" else 1
    sign = "+" if unit == "fraction" else ""
    ends = [f"{scale * value:{sign}.1f}" for value in (low, high)]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} .. {ends[1]} %"
