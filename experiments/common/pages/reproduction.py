"""The page docs/reproduction.md: every artifact of the papers with its figure, its rows, and every claim about it."""

import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.claims.ledger import Ledger, PaperClaim, ledgers
from experiments.common.claims.verdicts import (
    COLUMNS,
    JUDGED,
    Verdict,
    by_kind,
    by_paper,
    by_source,
    headline,
    paper_says,
    papers,
    tested,
    total,
)
from experiments.common.evaluation.gpu_times import NAME
from experiments.common.figures.discovery import chosen, discover, experiments_dir
from experiments.common.figures.every_claim import headlines, verdicts
from experiments.common.figures.figure import Figure
from experiments.common.pages.markdown import NOTE, code, table
from ssfx.core.rows import Row

IMAGES = experiments_dir().parent / "docs" / "img"

INTRODUCTION = """\
Every figure, table, algorithm and set-up of the papers: our figure, the command that makes its rows, the rows that are
committed, and every claim about it with a verdict. [Experiments](experiments.md) has the settings and what the papers
leave open. A claim *agrees* where our range lies inside the stated one, *partly* where they overlap, and *disagrees*
where they do not. It is *not comparable* where our rows come from other conditions, and *not attempted* where nothing
of ssfx speaks to it; then the last column says why. No model of time was fitted to a claim. Simulated and real rows are
never mixed, but for times to a quality: measured steps times simulated seconds. The claims are those of
`experiments/<paper>/claims.json`, in our words.

Quality comes from trainings of 1,000 steps and more alone. Small networks cannot repeat a level, so sign and rank of a
gap are judged, against the noise of seeds (95 %, pooled over all methods of a network). What that hides is not decided.

None of these tables is typed: `make docs` writes them, and a test fails when the committed rows give others.
`ssfx report` makes one page of the same with all figures, for a browser."""


def reproduction_page(rows: Sequence[Row]) -> str:
    """Return the whole page as `rows` give it."""
    figures = chosen([])
    found = verdicts(figures, rows)
    by_claim = grouped(found, lambda one: one.claim)
    said = textwrap.fill(f"{summary(headline(found), rows)} {by_other_times(found)}", 120)
    parts = [f"# Reproduction, paper by paper\n\n<!-- {NOTE} -->\n\n{INTRODUCTION}\n\n{said}"]
    ledger = {one.paper: one for one in ledgers()}
    for paper in papers():
        parts.append(f"## {paper}\n\n{ledger[paper].title}, {ledger[paper].venue}.")
        for artifact in ledger[paper].artifacts:
            parts.append(_section(artifact, figures, ledger[paper], by_claim, rows))
    named = {artifact["id"] for one in ledgers() for artifact in one.artifacts}
    for figure in figures:
        if not any(is_of(figure, name) for name in named):
            parts.append("\n\n".join(_figure(figure, rows)))
    return "\n\n".join(parts) + "\n"


def obtained(rows: Sequence[Row]) -> str:
    """Return how rows were obtained: kind, hardware, number, minutes if they were timed, and days."""
    if not rows:
        return "none yet"
    kinds = sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows})
    dates = sorted(row.origin.date[:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    # a simulation takes no time worth telling
    timed = [_seconds(row) for row in rows if {"started", "stopped"} <= row.manifest.keys()]
    took = f"{sum(timed) / 60:.0f} min, " if timed else ""
    return f"{'; '.join(kinds)}: {len(rows)} runs, {took}{when}"


def is_of(figure: Figure, artifact: str) -> bool:
    """Return whether a figure shows an artifact, or a part of it."""
    return figure.name == artifact or figure.name.startswith(f"{artifact}_")


def _section(
    artifact: Mapping[str, Any], figures: Sequence[Figure], ledger: Ledger, verdicts: Mapping[str, Sequence[Verdict]],
    rows: Sequence[Row],
) -> str:  # fmt: skip
    parts = [f"### {artifact['id']}", f"In the paper: {artifact['title'][0].lower()}{artifact['title'][1:]}."]
    for figure in (figure for figure in figures if is_of(figure, artifact["id"])):
        parts += _figure(figure, rows, heading=figure.name != artifact["id"])
    claims = [claim for claim in ledger.claims if claim.artifact == artifact["id"]]
    if claims:
        parts.append(claim_table(claims, verdicts))
    return "\n\n".join(parts)


def _figure(figure: Figure, rows: Sequence[Row], *, heading: bool = True) -> list[str]:
    chosen = figure.select(rows)
    title = f"{figure.title[0].upper()}{figure.title[1:]}."
    parts = [f"### {figure.name}"] if heading else []
    parts += [title, f"    {figure.command}"]
    if figure.needs:
        parts.append(f"**Rows.** {obtained(chosen)}.")
    if chosen or not figure.needs:
        # a figure of which only the baseline has rows draws nothing
        if (IMAGES / f"{figure.name}.png").exists():
            parts.append(f"![{figure.title}](img/{figure.name}.png)")
        parts.append(f"**What it shows.** {figure.finding(chosen)}.")
        parts += [" ".join(figure.notes)] if figure.notes else []
    return parts


def claim_table(claims: Sequence[PaperClaim], verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """Return the claims as a table, a line for each verdict."""
    lines = []
    for claim in claims:
        for number, one in enumerate(verdicts[claim.id]):
            first = (code(claim.id), claim.statement, paper_says(claim)) if number == 0 else ("", "", "")
            lines.append((*first, one.ours or "-", source(one), one.outcome, one.reason or "-"))
    return table(("claim", "says", "paper", "here", "source", "verdict", "why"), lines)


def source(one: Verdict) -> str:
    """Return where a value comes from, in words; "-" for none."""
    if one.source == "none":
        return "-"
    return f"{one.source} ({one.calibration})" if one.calibration else one.source


def _seconds(row: Row) -> float:
    start, stop = (datetime.fromisoformat(row.manifest[name]) for name in ("started", "stopped"))
    together: int = row.manifest.get("measured_together", 1)  # rows of interleaved work share their time
    return (stop - start).total_seconds() / together


# ---- The README's table of claims: what came of them, paper by paper -------------------------------------------------

PAGE = "docs/reproduction.md"
HEAD = ("paper", "claims", *COLUMNS)


def status_block(rows: Sequence[Row]) -> str:
    """Return what came of all claims in a few sentences, and one line of counts for each paper."""
    verdicts = headlines(discover().values(), rows)
    names = papers()
    lines = [
        (f"[{names[paper]}]({PAGE}#{paper})", str(found.total()), *(str(found[column]) for column in COLUMNS))
        for paper, found in by_paper(verdicts).items()
    ]
    return f"{textwrap.fill(summary(verdicts, rows), 120)}\n\n{table(HEAD, lines)}"


def summary(verdicts: Mapping[str, Verdict], rows: Sequence[Row]) -> str:
    """Return what came of the claims: how many were tested, from which source, by kind, and whether a GPU was used."""
    found = total(verdicts)
    restated = [one for one in verdicts.values() if one.source == "restated"]
    as_stated = sum(one.outcome == "agrees" for one in restated)
    sources, kinds = (
        "; ".join(
            f"{name}: {counts['agrees']} of {tested(counts)} agree" for name, counts in by.items() if tested(counts)
        )
        for by in (by_source(verdicts), by_kind(verdicts))
    )
    return (
        f"**Of {found.total()} claims of {len(papers())} papers, {tested(found)} were tested: {found['agrees']} agree, "
        f"{found['partly']} partly, {found['within error']} lie within the simulator's error, {found['disagrees']} "
        f"disagree.** By source, {sources}. By kind, {kinds}. "
        f"{len(restated)} more restate a set-up or a definition, {as_stated} as the paper has them; they could hardly "
        f"have come out otherwise. {_on_gpus(rows)}"
    )


def by_other_times(found: Sequence[Verdict]) -> str:
    """Return how many claims come out otherwise by times fitted to other numbers of the same paper."""
    counting = headline(found)
    nominal = {name: one.outcome for name, one in counting.items() if one.calibration == "nominal"}
    published = {one.claim: one.outcome for one in found if one.calibration == "published" and one.outcome in JUDGED}
    both = [(nominal[name], published[name]) for name in nominal if name in published]
    gained, lost = both.count(("disagrees", "agrees")), both.count(("agrees", "disagrees"))
    return (
        f"{len(both)} claims have a verdict by nominal times, which count, and one by times that are fitted to other "
        f"numbers of the same paper (published): {gained} of those that disagree agree by the latter, {lost} the other "
        "way round."
    )


def _on_gpus(rows: Sequence[Row]) -> str:
    """Return a sentence on real runs on GPUs; a simulated row names the GPU that it stands for, so it is none."""
    used = [row for row in rows if row.origin.kind != "simulated" and row.case.device != "cpu"]
    if not used:
        return f"No row here comes from a GPU; single compressors were timed on one, an {NAME}."
    return f"{len(used)} rows come from GPUs ({', '.join(sorted({row.origin.hardware for row in used}))})."
