"""What came of the papers' claims: the README's table, and in each paper's README a line for every artifact."""

import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime

from experiments.common.claims.ledger import Ledger, ledgers
from experiments.common.claims.verdicts import (
    COLUMNS,
    JUDGED,
    Verdict,
    by_kind,
    by_paper,
    by_source,
    counts,
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
from experiments.common.pages.markdown import table
from ssfx.core.rows import Row

IMAGES = experiments_dir().parent / "docs" / "img"


def paper_blocks(rows: Sequence[Row]) -> dict[str, str]:
    """Return for each paper a table with a line for every figure: what it shows, and what came of its claims."""
    figures = chosen([])
    counted = headline(verdicts(figures, rows))
    blocks = {}
    for ledger in ledgers():
        lines = []
        for artifact in ledger.artifacts:
            of = counts([claim for claim in ledger.claims if claim.artifact == artifact["id"]], counted)
            outcome = ", ".join(f"{of[column]} {column}" for column in COLUMNS if of[column]) or "-"
            own = [figure for figure in figures if is_of(figure, artifact["id"])]
            lines += [(_link(one), one.title, outcome if one is own[0] else "") for one in own]
            if not own:
                lines.append((artifact["id"], artifact["title"], outcome))
        shown = [one for one in figures if one.name.partition(".")[0] == ledger.paper]
        named = [artifact["id"] for artifact in ledger.artifacts]
        lines += [(_link(one), one.title, "-") for one in shown if not any(is_of(one, name) for name in named)]
        twice = table(TWICE, [(said, met) for said, met in says_twice(ledger, counted)])
        blocks[ledger.paper] = f"{table(('figure', 'shows', 'claims'), lines)}\n\n{twice}"
    return blocks


TWICE = ("what the paper says twice, and not alike", "its claims here")


def says_twice(ledger: Ledger, counted: Mapping[str, Verdict]) -> list[tuple[str, str]]:
    """Return what a paper says twice and not alike, each with the claims that it is about, our value and verdict."""
    found = []
    for issue, said in ledger.says_twice.items():
        own = [claim for claim in ledger.claims if claim.issue == issue]
        met = [
            f"{claim.id.partition('.')[2]} ({paper_says(claim)}): here {one.ours or 'no value'}, {one.outcome}"
            for claim, one in ((claim, counted[claim.id]) for claim in own)
        ]
        more = f"; and {len(met) - SHOWN} more" if len(met) > SHOWN else ""
        found.append((said, "; ".join(met[:SHOWN]) + more))
    return found


SHOWN = 3
"""Claims of one contradiction that are listed."""


def _link(figure: Figure) -> str:
    picture = IMAGES / f"{figure.name}.png"
    return f"[{figure.name}](../../docs/img/{picture.name})" if picture.exists() else figure.name


def obtained(rows: Sequence[Row]) -> str:
    """Return how rows were obtained: kind, hardware, number, minutes if they were timed, and days."""
    if not rows:
        return "none yet"
    kinds = sorted({f"{row.kind} on {row.origin.hardware}" for row in rows})
    dates = sorted(row.origin.date[:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    # a simulation takes no time worth telling
    timed = [_seconds(row) for row in rows if {"started", "stopped"} <= row.manifest.keys()]
    took = f"{sum(timed) / 60:.0f} min, " if timed else ""
    return f"{'; '.join(kinds)}: {len(rows)} runs, {took}{when}"


def is_of(figure: Figure, artifact: str) -> bool:
    """Return whether a figure shows an artifact, or a part of it."""
    return artifact in figure.claims or figure.name.startswith(f"{artifact}_")


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

HEAD = ("paper", "claims", *COLUMNS)


def status_block(rows: Sequence[Row]) -> str:
    """Return what came of all claims in a few sentences, and one line of counts for each paper."""
    verdicts = headlines(discover().values(), rows)
    names = papers()
    lines = [
        (
            f"[{names[paper]}](experiments/{paper}/README.md)",
            str(found.total()),
            *(str(found[column]) for column in COLUMNS),
        )
        for paper, found in by_paper(verdicts).items()
    ]
    return f"{textwrap.fill(summary(verdicts, rows), 120)}\n\n{table(HEAD, lines)}"


def summary(verdicts: Mapping[str, Verdict], rows: Sequence[Row]) -> str:
    """Return what came of the claims: how many were tested, from which source, by kind, and whether a GPU was used."""
    found = total(verdicts)
    restated = [one for one in verdicts.values() if one.source == "restated"]
    as_stated = sum(one.outcome == "agrees" for one in restated)
    sources, kinds = (
        "; ".join(f"{name}: {one['agrees']} of {tested(one)} agree" for name, one in by.items() if tested(one))
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
