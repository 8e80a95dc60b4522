"""`ssfx status`: what came of the papers' claims, and how far the runs are."""

import json
from collections import Counter
from collections.abc import Mapping

import click

from experiments.common.claims.ledger import ledgers
from experiments.common.claims.verdicts import (
    COLUMNS,
    Verdict,
    by_kind,
    by_paper,
    by_source,
    paper_says,
    papers,
    sentence,
    total,
)
from experiments.common.figures.every_claim import headlines
from experiments.common.pages.markdown import table
from ssfx.cli.terminal import print_table
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError, unknown
from ssfx.core.files import read
from ssfx.core.paths import results_dir
from ssfx.lab.cli.watch import watch
from ssfx.lab.results.store import Store


@click.command()
@click.option("--claims", "paper", metavar="PAPER", help="Show every claim of one paper with its verdict.")
@click.option(
    "--table", "form", type=click.Choice(["markdown", "latex"]), help="With --claims: print them as a table of a paper."
)
@click.option("--watch", "watched", is_flag=True, help="Show the runs again and again until none is under way.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts, or with --claims the claims, as JSON.")
def status(paper: str | None, form: str | None, watched: bool, as_json: bool) -> None:
    """Show how many of the papers' claims agree with ours, and which runs are finished."""
    if watched:
        if paper is not None or as_json:
            raise ConfigError("--watch shows runs on a screen; drop it, or the other options")
        watch(Store(results_dir()))
        return
    if form and (paper is None or as_json):
        raise ConfigError(f"--table {form} is a form of --claims PAPER; add it, and drop --json")
    from experiments.common.figures.discovery import discover

    if paper is not None and paper not in papers():
        raise unknown("paper", paper, papers())
    store = Store(results_dir())
    rows, unreadable = store.readable()
    verdicts = headlines(discover().values(), rows)
    if as_json:
        _plain(paper, verdicts, store)
    elif paper is not None:
        lines = []
        for claim in (claim for ledger in ledgers() if ledger.paper == paper for claim in ledger.claims):
            one = verdicts[claim.id]
            lines.append((claim.id.partition(".")[2], paper_says(claim), one.ours or "-", one.source, one.outcome))
        heads = ("claim", "paper", "here", "source", "verdict")
        if form == "markdown":
            click.echo(table(heads, lines))
        elif form == "latex":
            from pandas import DataFrame

            click.echo(DataFrame(lines, columns=list(heads)).to_latex(index=False, escape=True, longtable=True))
        else:
            print_table(heads, lines)
    else:
        _summary(verdicts)
        _runs(store, len(rows))
    if unreadable:
        raise RunError(f"{len(unreadable)} rows cannot be read: {unreadable[0].message}")


def _summary(verdicts: Mapping[str, Verdict]) -> None:
    names = papers()
    found = total(verdicts)
    click.secho(f"{found.total()} claims of {len(names)} papers: {sentence(found)}", bold=True)
    head = ("claims", *COLUMNS)
    for first, counted in (
        ("paper", {names[paper]: counts for paper, counts in by_paper(verdicts).items()}),
        ("kind of claim", dict(by_kind(verdicts))),
        ("source of our value", by_source(verdicts)),
    ):
        click.echo()
        lines = [
            (name, str(counts.total()), *(str(counts[one]) for one in COLUMNS)) for name, counts in counted.items()
        ]
        print_table((first, *head), lines, right=head)
    click.echo("\nclaim by claim: ssfx status --claims ssfusion; as one page with every figure: ssfx report")


def _plain(paper: str | None, verdicts: Mapping[str, Verdict], store: Store) -> None:
    """Print claims by paper and outcome and runs by experiment, or every claim of one paper."""
    if paper is None:
        counted = {name: {one: counts[one] for one in COLUMNS} for name, counts in by_paper(verdicts).items()}
        runs = {name: dict(counts) for name, counts in run_counts(store).items()}
        click.echo(json.dumps({"claims": counted, "runs": runs}))
        return
    claims = [claim for ledger in ledgers() if ledger.paper == paper for claim in ledger.claims]
    found = [
        {"claim": claim.id, "ours": one.ours, "source": one.source, "outcome": one.outcome}
        for claim, one in ((claim, verdicts[claim.id]) for claim in claims)
    ]
    click.echo(json.dumps({"paper": paper, "claims": found}))


def _runs(store: Store, rows: int) -> None:
    counted = run_counts(store)
    for experiment, count in counted.items():
        half = count["half"] + count["new"]
        line = f"runs of {experiment}: {count['finished']} finished, {count['failed']} failed, {half} half-finished"
        click.secho(line, fg="red" if count["failed"] else None)
    if not counted:
        click.echo(f"no runs in {store.runs.parent.name}/ yet; {rows} reference rows; start with: ssfx run")


def run_counts(store: Store) -> dict[str, Counter[str]]:
    """Return how many runs of each experiment in the store are finished, failed, half (cut off) or new."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(store.runs.glob("*/case.json")):
        case = read(path, Case.from_json, what="not a case of this version of ssfx: remove the folder")
        counts.setdefault(case.experiment, Counter())[store.status(case)] += 1
    return counts
