"""docs/reproduction.md shows every figure with its rows, what they say, and every claim that was put to them."""

import re
from datetime import UTC, datetime, timedelta

from figures.synthetic import throughput
from figures.synthetic_clusters import clusters
from ssfx.pages.wording import real, simulated

from ssfx.figures.discovery import discover
from ssfx.pages import readme as docs
from ssfx.pages.markdown import anchor, cut, table
from ssfx.pages.reproduction import reproduction_page


def section(page, name):
    """Return the text below the heading of a figure."""
    return re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)[1]


def test_the_page_is_what_the_reference_rows_give():
    assert docs.REPRODUCTION.read_text() == reproduction_page(docs.reference_rows()), "run `make docs` and commit"


def test_every_figure_has_a_section_with_its_command_rows_picture_and_finding():
    rows = docs.reference_rows()
    page = reproduction_page(rows)
    for figure in discover().values():
        text = section(page, figure.name)
        chosen = figure.select(rows)
        assert f"\n    {figure.command}\n" in text
        assert f": {len(chosen)} runs, " in text
        assert f"(img/{figure.name}.png)" in text
        assert figure.finding(chosen) in text
        assert {row.origin.hardware for row in chosen if row.origin.hardware not in text} == set()


def test_every_judged_claim_has_the_papers_value_ours_and_a_verdict_or_a_reason():
    rows = docs.reference_rows()
    page = reproduction_page(rows)
    for figure in discover().values():
        lines = section(page, figure.name).splitlines()
        for one in simulated(figure, rows):
            line = next(line for line in lines if line.startswith(f"| `{one.claim.id}` |"))
            assert f" | {one.there} | " in line
            assert f" {one.here}: " in line
            assert line.endswith(f" | {one.why or '-'} |")
        for one in real(figure, rows):
            line = next(line for line in lines if line.startswith(f"| `{one.claim.id}` |"))
            assert f"{one.low * (100 if one.claim.unit == 'fraction' else 1):.3g}" in line
            assert line.endswith(f": {one.verdict} | {one.why} |")


def test_what_the_page_says_about_rows_and_verdicts():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started": start.isoformat(), "stopped": (start + timedelta(minutes=2)).isoformat()}
    rows = throughput(manifest=times)
    text = section(reproduction_page([*rows, *clusters()]), "ssfusion.fig11")
    assert f"measured on Invented CPU, 2 cores: {len(rows)} runs, {2 * len(rows)} min, 2026-01-01" in text
    assert "resnet_tiny: 0.67x (per_tensor) to 0.95x (fused_all, ranges overlap)" in text
    assert "**Claims.** measured: 2 not comparable." in text
    assert "simulated" not in text
    text = section(reproduction_page([*rows, *clusters()]), "ssfusion.fig09")
    assert "simulated (nominal): 1 agree, 1 disagree, " in text
    line = "| `ssfusion.fig9.linear` | All-Gather time grows linearly with GPU count | 9.49 to 9.69 |"
    assert f"{line} 9: agrees | 9: agrees | - |" in text


def test_without_rows_the_page_says_so():
    text = section(reproduction_page([]), "ssfusion.fig12")
    assert "**Rows.** none yet." in text
    assert "img/" not in text


def test_cells_of_tables_cannot_break_them():
    assert table(("a", "b"), [("x|y", "z")]) == "| a | b |\n| --- | --- |\n| x\\|y | z |"
    assert cut("one two three", 13) == "one two three"
    assert cut("one two, three", 10) == "one two…"
    assert anchor("Options that several schemes share") == "options-that-several-schemes-share"
    assert anchor("ssfusion.fig11_clusters") == "ssfusionfig11_clusters"
