"""The README and docs/img show what the committed rows give, and nothing else."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from docs.markdown import ROOT
from figures.synthetic import throughput

from ssfx.figures import check_all, discover
from ssfx.results import readme as docs
from ssfx.results.claims import ledgers
from ssfx.validation.groups import load

AGAIN = "run `make docs` and commit what it changed"


def test_the_readme_blocks_are_what_the_reference_rows_give():
    readme = (ROOT / "README.md").read_text()
    assert docs.updated(readme, docs.reference_rows()) == readme, AGAIN


def test_the_validation_page_holds_the_scores_that_the_command_prints():
    page = docs.VALIDATION.read_text()
    assert docs.with_blocks(page, {"scores": docs.scores_block()}) == page, AGAIN
    lines = {line.split(" | ")[0].strip("| *"): line for line in page.splitlines() if line.startswith("| ")}
    for group in (*load("recorded"), *load("published")):
        assert f"| {group.total.count} | {100 * group.total.mean:.3g} % |" in lines[group.title]


@pytest.mark.slow
def test_the_pictures_are_what_the_reference_rows_give():
    checked = check_all([], docs.reference_rows(), docs.IMAGES)
    expected = {path.with_suffix(ending).name for path in checked for ending in (".png", ".csv")}
    assert {path.name for path in docs.IMAGES.glob("[!.]*")} == expected, AGAIN


def test_pictures_are_small_enough_for_a_repository():
    for path in docs.IMAGES.glob("*.png"):
        assert path.stat().st_size < 200_000, path.name


def test_the_blocks_quote_origin_cost_and_finding_of_the_rows():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started": start.isoformat(), "stopped": (start + timedelta(minutes=2)).isoformat()}
    rows = throughput(manifest=times)
    assert docs.figure_block(rows).startswith(
        "![training throughput per workload and scheme](docs/img/ssfusion.fig11.png)"
    )
    line = next(line for line in docs.status_block(rows).splitlines() if line.startswith("| ssfusion.fig11 "))
    assert f"measured on Invented CPU, 2 cores: {len(rows)} runs, {2 * len(rows)} min, 2026-01-01" in line
    assert "resnet_tiny: 0.67x (per_tensor) to 0.95x (fused_all, ranges overlap)" in line
    assert "2 not comparable" in line


def test_a_readme_without_its_blocks_is_refused():
    with pytest.raises(ValueError, match="exactly one block 'figure', it has 0"):
        docs.updated("# a page", [])


def test_figures_name_claims_or_artifacts_of_the_ledger():
    known = {claim.id for ledger in ledgers() for claim in ledger.claims}
    known |= {artifact["id"] for ledger in ledgers() for artifact in ledger.artifacts}
    for figure in discover().values():
        assert set(figure.claims) <= known, figure.name


def test_the_make_targets_that_documents_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "results/README.md"):
        text = (ROOT / name).read_text()
        named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, flags=re.MULTILINE)
        assert named, name
        assert set(named) <= targets, name
