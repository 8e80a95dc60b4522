"""docs/reproduction.md shows every artifact with its figure, and every claim with a verdict or a reason."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from figures.synthetic import throughput
from figures.synthetic_clusters import clusters

from experiments.common.claims.ledger import ledgers
from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import verdicts
from experiments.common.pages import readme as docs
from experiments.common.pages.markdown import anchor, table
from experiments.common.pages.reproduction import by_other_times, reproduction_page


def section(page, name):
    """Return the text below the heading of a figure."""
    return re.search(rf"^### {re.escape(name)}\n(.*?)(?=^### |^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module")
def page():
    return reproduction_page(docs.reference_rows())


@pytest.mark.pages
def test_the_page_is_what_the_reference_rows_give(page):
    assert docs.REPRODUCTION.read_text() == page, "run `make docs` and commit"


@pytest.mark.pages
def test_every_figure_has_a_section_with_its_command_picture_and_finding(page, tmp_path):
    rows = docs.reference_rows()
    for figure in discover().values():
        text = section(page, figure.name)
        chosen = figure.select(rows)
        assert f"\n    {figure.command}\n" in text
        if chosen or not figure.needs:
            # where rows of the baseline alone draw nothing there is no picture to show
            assert f"(img/{figure.name}.png)" in text or figure.draw(chosen, tmp_path) == []
            assert figure.finding(chosen) in text
        if chosen:
            assert f": {len(chosen)} runs, " in text
            assert {row.origin.hardware for row in chosen if row.origin.hardware not in text} == set()


@pytest.mark.pages
def test_every_claim_of_every_paper_has_a_line_with_its_verdict_and_reason(page):
    lines = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in page.splitlines() if line.startswith("|")]
    first = {line[0].strip("`"): line for line in lines if line[0].startswith("`")}
    assert set(first) == {claim.id for ledger in ledgers() for claim in ledger.claims}
    for one in verdicts(discover().values(), docs.reference_rows()):
        assert one.outcome in page
        assert one.reason.replace("|", "\\|") in page


@pytest.mark.slow
def test_what_the_page_says_about_rows_and_verdicts():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started": start.isoformat(), "stopped": (start + timedelta(minutes=2)).isoformat()}
    rows = throughput(manifest=times)
    whole = reproduction_page([*rows, *clusters()])
    text = section(whole, "ssfusion.fig11_here")
    assert f"measured on Invented CPU, 2 cores: {len(rows)} runs, {2 * len(rows)} min, 2026-01-01" in text
    assert "resnet_tiny: 0.67x (per_tensor) to 0.95x (fused_all, ranges overlap)" in text
    text = section(whole, "ssfusion.fig9")
    line = "| `ssfusion.fig9.linear` | All-Gather time grows linearly with GPU count | as stated "
    assert line in text
    assert "| as stated | 9 | simulated (nominal) | agrees | - |" in text


@pytest.mark.slow
def test_without_rows_the_page_says_so():
    text = section(reproduction_page([]), "ssfusion.fig12")
    assert "**Rows.** none yet." in text
    assert "img/" not in text


def test_cells_of_tables_cannot_break_them():
    assert table(("a", "b"), [("x|y", "z")]) == "| a | b |\n| --- | --- |\n| x\\|y | z |"
    assert anchor("Options that several schemes share") == "options-that-several-schemes-share"
    assert anchor("ssfusion.fig11_clusters") == "ssfusionfig11_clusters"


def test_the_page_says_how_many_verdicts_hang_on_the_calibration() -> None:
    found = [
        Verdict(claim, word, "1", "simulated", calibration, "a test")
        for claim, words in {"a": ("disagrees", "agrees"), "b": ("agrees", "disagrees"), "c": ("agrees",)}.items()
        for word, calibration in zip(words, ("nominal", "published"), strict=False)
    ]
    said = by_other_times(found)
    assert said.startswith("2 claims have a verdict by nominal times")
    assert "1 of those that disagree agree by the latter, 1 the other" in said
