"""The README and docs/img show what the committed rows give, and nothing else."""

import json
import re

import pytest
from docs.markdown import ROOT

from experiments.common.claims.ledger import ledgers
from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import check_all
from experiments.common.pages import readme as docs
from experiments.common.pages.conditions import algebra_block, compute, conditions_block
from experiments.common.pages.models import Published, analytic_block, models_block
from experiments.common.pages.recorded_runs import RECORD, emulated_block
from experiments.common.validation.ground_truth import load
from ssfx.lab.workloads.base import models
from ssfx.perf_model.roofline import analytic_profile

AGAIN = "run `make docs` and commit what it changed"


@pytest.mark.pages
def test_the_readme_blocks_are_what_the_reference_rows_give():
    readme = (ROOT / "README.md").read_text()
    assert docs.updated(readme, docs.reference_rows()) == readme, AGAIN


@pytest.mark.pages
def test_the_blocks_of_other_pages_are_what_registries_and_records_give():
    for path, blocks in docs.blocks_of_pages().items():
        page = path.read_text()
        assert docs.with_blocks(page, blocks) == page, f"{path.name}: {AGAIN}"


@pytest.mark.pages
def test_the_validation_page_holds_the_scores_that_the_command_prints():
    page = docs.VALIDATION.read_text()
    lines = {line.split(" | ")[0].strip("| *"): line for line in page.splitlines() if line.startswith("| ")}
    for group in (*load("recorded"), *load("published")):
        assert f"| {group.total.count} | {100 * group.total.mean:.3g} % |" in lines[group.title]


def test_every_model_has_a_line_with_the_data_that_it_fits():
    lines = {line.split(" | ")[0].strip("| `"): line for line in models_block().splitlines()[2:]}
    assert list(lines) == [model.name for model in models]
    assert lines["gpt2_tiny"] == "| `gpt2_tiny` | 1,878,144 | 52 | 8 | bytes, at most 256 | `stdlib_text` |"
    assert lines["vgg19"].endswith("classes | - |")


def test_an_analytic_time_stands_beside_each_published_one(monkeypatch):
    analytic_s = analytic_profile("resnet50", "v100", 128).alone_s()
    twice = Published("resnet50", "v100", 128, analytic_s / 2, analytic_s / 2, "somebody")
    between = Published("resnet50", "v100", 128, analytic_s, 2 * analytic_s, "another")
    most = Published("resnet50", "v100", 128, analytic_s, analytic_s, "a third", at_most=True)
    monkeypatch.setattr("experiments.common.pages.models.PUBLISHED", (twice, between, most))
    cells = [line.split(" | ")[1:] for line in analytic_block().splitlines()[2:]]
    ms = f"{1e3 * analytic_s:.0f}"
    assert cells[0] == [ms, f"{500 * analytic_s:.0f}", "2.00", "somebody |"]
    assert cells[1] == [ms, f"{ms} to {2e3 * analytic_s:.0f}", "0.50 to 1.00", "another |"]
    assert cells[2] == [ms, f"at most {ms}", "at least 1.00", "a third |"]


OBTAINED = {
    "date": "2026-01-02T03:04:05",
    "code": {"commit": "0123456789"},
    "versions": {"torch": "9.9"},
    "rounds": 4,
    "hardware": {"cpu": "Invented CPU", "cores": 3},
}


def test_a_benchmark_is_shown_with_the_machine_it_ran_on(tmp_path):
    runs = [
        OBTAINED | {"network": "loopback", "background_cores": 0.04, "summary": [["vgg_tiny", "met"]]},
        OBTAINED | {"network": "1gbit", "background_cores": 0.26, "summary": [["a|b", "missed"]]},
        OBTAINED | {"network": "1gbit", "background_cores": 0.0, "summary": [["c", "met"]], "rounds": 6},
    ]
    assert "Nothing is committed yet" in emulated_block(tmp_path)
    (tmp_path / RECORD).write_text(json.dumps({"columns": ["model", "verdict"], "runs": runs}))
    lines = emulated_block(tmp_path).splitlines()
    assert lines[0] == "| model | verdict |"
    assert lines[2:5] == ["| vgg_tiny | met |", "| a\\|b | missed |", "| c | met |"]
    about = "Invented CPU, 3 cores, 2026-01-02, commit 0123456, torch 9.9"
    assert lines[-1].startswith(f"loopback, 1gbit: {about}, 4 rounds; 1gbit: {about}, 6 rounds. One thread a worker; ")
    assert "at most 0.3 cores" in lines[-1]


@pytest.mark.nightly
def test_the_pictures_are_what_the_reference_rows_give():
    checked = check_all([], docs.reference_rows(), docs.IMAGES)
    expected = {path.with_suffix(ending).name for path in checked for ending in (".png", ".csv")}
    assert {path.name for path in docs.IMAGES.glob("[!.]*")} == expected, AGAIN


def test_pictures_are_small_enough_for_a_repository():
    sizes = {path.name: path.stat().st_size for path in docs.IMAGES.glob("*.png")}
    assert sum(sizes.values()) < 12_500_000
    # The largest is Fig. 12 of SSFusion, a page of three columns of panels, 1650 x 2260 pixels, of all systems. True
    # colours, which its small marks need, are more bytes than a palette; the strongest compression would save only 2 %.
    assert max(sizes.values()) < 680_000, max(sizes, key=sizes.__getitem__)


def test_a_readme_without_its_blocks_is_refused():
    with pytest.raises(ValueError, match="exactly one block 'answer', it has 0"):
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


def test_the_algebra_follows_from_what_the_paper_prints():
    # BERT-large: 55.4 % of communication and 48.3 % of sparsification saved, 66.9 to 106.7 % more throughput.
    assert compute(1.669, 0.446) == pytest.approx((1 - 0.446 * 1.669) / 0.669)
    slow = 0.38 + 0.205 + 1  # HiPress's iteration with C = S = 1 takes as long as r times SSFusion's
    assert slow + 1 == pytest.approx(1.669 * (0.38 + 0.205 + 0.446 + 0.517), rel=0.005)
    block = algebra_block()
    assert "| bert_large | 1.669 | 44.6% | 51.7% | +0.38 C +0.20 S | 28% |" in block
    assert "| bert_large | 2.067 | 44.6% | 51.7% | +0.07 C -0.06 S | 7% |" in block
    assert "`bert_large` at the customary batch in 0.22 s" in block


def test_conditions_say_what_the_table_of_the_figure_gives(tmp_path):
    file = tmp_path / "table.csv"
    head = "model,busbw_gbps,call_ms,orderings,oi_vs_hipress,oi_vs_cupcake,oi_vs_dense,best_vs_dense,best_vs_dense16"
    file.write_text(f"{head}\na,1,0.1,6,1,1,1,1,1\na,57,0.1,3,0.5,-0.1,0,0.25,-0.2\na,57,0.2,6,0.1,-0.3,0,0.2,-0.2\n")
    block = conditions_block(file)
    assert "in 2 of 3 settings, the fastest of them at 57 Gbit/s; at 1 Gbit/s whatever" in block
    assert "3 to 6 orderings hold. O+I as the paper ran it is +10 to +50 % against HiPress" in block
    assert "| 57 | a | 3 to 6 | +10 to +50 % | +20 to +25 % | -20 % |" in block


def test_the_site_shows_lines_of_code_whole():
    """docs/site.css is made for 120 characters at 1280 pixels; the site takes it, and its target copies it."""
    code = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(("    ", "$ "))]
    assert max(map(len, code)) <= 4 + 120
    assert "extra_css: [docs/site.css]" in (ROOT / "mkdocs.yml").read_text()
    assert " docs/site.css " in re.search(r"^PAGES = ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
