"""The README's table of claims: what came of them, paper by paper."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from experiments.common.claims.every_claim import headlines
from experiments.common.claims.summary import COLUMNS, Column, by_kind, by_paper, by_source, papers, tested, total
from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.discovery import discover
from experiments.common.pages.markdown import table
from ssfx.core.rows import Row

PAGE = "docs/reproduction.md"
HEAD = ("paper", "claims", *COLUMNS)


def status_block(rows: Sequence[Row]) -> str:
    """Return what came of all claims in a few sentences, and one line of counts for each paper."""
    verdicts = headlines(discover().values(), rows)
    names = papers()
    lines = [_line(f"[{names[paper]}]({PAGE}#{paper})", found) for paper, found in by_paper(verdicts).items()]
    return f"{textwrap.fill(summary(verdicts, rows), 120)}\n\n{table(HEAD, lines)}"


def summary(verdicts: Mapping[str, Verdict], rows: Sequence[Row]) -> str:
    """Return what came of the claims: how many were tested, from which source, by kind, and whether a GPU was used."""
    found = total(verdicts)
    restated = [one for one in verdicts.values() if one.source == "restated"]
    as_stated = sum(one.outcome == "agrees" for one in restated)
    sources = "; ".join(f"{name}: {_agree(counts)}" for name, counts in by_source(verdicts).items())
    kinds = "; ".join(f"{name}: {_agree(counts)}" for name, counts in by_kind(verdicts).items() if tested(counts))
    return (
        f"**Of {found.total()} claims of {len(papers())} papers, {tested(found)} were tested: {found['agrees']} agree, "
        f"{found['partly']} partly, {found['within error']} lie within the simulator's error, {found['disagrees']} "
        f"disagree.** By source, {sources}. By kind, {kinds}. "
        f"{len(restated)} more restate a set-up or a definition, {as_stated} as the paper has them; they could hardly "
        f"have come out otherwise. {_on_gpus(rows)}"
    )


def _agree(counts: Counter[Column]) -> str:
    return f"{counts['agrees']} of {tested(counts)} agree"


def _line(name: str, counts: Counter[Column]) -> Sequence[str]:
    return [name, str(counts.total()), *(str(counts[column]) for column in COLUMNS)]


def _on_gpus(rows: Sequence[Row]) -> str:
    """Return a sentence on real runs on GPUs; a simulated row names the GPU that it stands for, so it is none."""
    used = [row for row in rows if row.origin.kind != "simulated" and row.case.device != "cpu"]
    if not used:
        return "No claim was tested on GPUs: no row here comes from one."
    return f"{len(used)} rows come from GPUs ({', '.join(sorted({row.origin.hardware for row in used}))})."
