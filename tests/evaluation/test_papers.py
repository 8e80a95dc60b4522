"""Every artifact of the four papers is a file, and every claim of it ends with one verdict a source, and a reason."""

from collections import Counter

import pytest

from experiments.common.claims.ledger import ledgers
from experiments.common.figures.discovery import discover
from experiments.common.figures.figure import Figure

PAPERS = ("acpsgd", "mergecomp", "micro", "s2reducer")
LEDGERS = {ledger.paper: ledger for ledger in ledgers()}
FIGURES = {name: figure for name, figure in discover().items() if name.partition(".")[0] in PAPERS}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artifact_is_a_file(paper: str) -> None:
    artifacts = {artifact["id"] for artifact in LEDGERS[paper].artifacts}
    shown = {name for figure in FIGURES.values() for name in figure.claims if figure.name.startswith(f"{paper}.")}
    assert shown == artifacts


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_every_claim_is_judged_once_without_any_row(figure: Figure) -> None:
    verdicts = figure.judge([])
    claims = [claim.id for ledger in LEDGERS.values() for claim in ledger.claims if claim.artifact in figure.claims]
    assert Counter(one.claim for one in verdicts) == Counter(claims)
    assert all(one.reason for one in verdicts if one.outcome != "agrees")
    assert all(one.command and one.cost for one in verdicts)
    assert figure.name in figure.claims


def test_papers_do_not_share_a_claim() -> None:
    claims = [one.claim for figure in FIGURES.values() for one in figure.judge([])]
    assert len(claims) == len(set(claims)) == sum(len(LEDGERS[paper].claims) for paper in PAPERS)


@pytest.mark.slow
@pytest.mark.parametrize("figure", [one for one in FIGURES.values() if not one.needs], ids=lambda figure: figure.name)
def test_what_is_computed_is_drawn_without_rows(figure: Figure, tmp_path) -> None:
    files = figure.draw([], tmp_path)
    assert (tmp_path / f"{figure.name}.csv").read_text().count("\n") > 1
    assert {path.suffix for path in files} >= {".png", ".csv"}
    assert figure.finding([])
