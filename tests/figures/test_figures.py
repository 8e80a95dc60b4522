"""Drawing: what is written, what it says of itself, that it repeats byte for byte, and that checks notice changes."""

import csv
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from evaluation.long_runs import long_row, seeds
from figures.synthetic import SCHEMES, achieved_density, latencies, row, throughput
from figures.synthetic_clusters import clusters
from figures.synthetic_missing import missing_rates
from PIL import Image

from experiments.common.figures import discovery as figures
from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import MANIFEST, draw_all
from experiments.common.figures.paper_words import FEW
from ssfx.core.origin import KINDS

AGAIN = ["ssfusion.fig13_here", "ssfusion.table2", "ssfusion.fig7"]


def quality():
    return [*seeds("ddp", 0.5), *seeds("ddp", 75.0, model="lstm_wikitext2_small")]


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def rows():
    return [*throughput(), *achieved_density(), *latencies(), *missing_rates(), *clusters()]


@pytest.fixture(scope="module")
def drawn(rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    draw_all(["ssfusion.fig11_here", "ssfusion.fig12", *AGAIN], [*rows, *quality()], out, processes=1)
    return rows, out


@pytest.mark.pages
def test_every_figure_gets_an_image_a_pdf_and_a_csv(rows, tmp_path):
    out, found = tmp_path, draw_all([], rows, tmp_path, processes=1)
    with_rows = {one.name for one in found if one.state == "drawn"}
    without = {name for name, one in discover().items() if one.needs and not one.select(rows)}
    assert set(discover()) - with_rows == without
    assert len(without) < len(with_rows)
    expected = {out / f"{name}.{ending}" for name in with_rows for ending in ("png", "pdf", "svg", "csv")}
    assert {path for one in found for path in one.files} == expected == set(out.iterdir()) - {out / MANIFEST}


def test_images_name_their_runs_and_origin_and_carry_the_digest_of_their_csv(drawn):
    rows, out = drawn
    with Image.open(out / "ssfusion.fig11_here.png") as image:
        info = image.info
    assert info["Origin"] == "measured on Invented CPU, 2 cores"
    real = [r for r in rows if r.case.experiment == "throughput" and not r.case.calibration]
    assert info["Runs"].split() == sorted(r.run_id for r in real)
    assert info["Csv-Sha256"] == hashlib.sha256((out / "ssfusion.fig11_here.csv").read_bytes()).hexdigest()


def test_the_throughput_table_holds_medians_ranges_and_scaling_factors(drawn):
    _, out = drawn
    lines = [line for line in table(out / "ssfusion.fig11_here.csv") if line["workload"] == "resnet_tiny / digits"]
    assert [line["scheme"] for line in lines] == [scheme for scheme in SCHEMES if scheme in FEW]
    for line in lines:
        assert float(line["scaling_factor"]) == pytest.approx(SCHEMES[line["scheme"]], rel=1e-5)
        assert float(line["vs_ddp"]) == pytest.approx(SCHEMES[line["scheme"]] / SCHEMES["ddp"], rel=1e-5)
        assert float(line["lowest"]) < float(line["samples_per_s"]) < float(line["highest"])
        assert (line["origin"], line["runs"]) == ("measured", "3")


def test_the_parts_of_a_breakdown_belong_to_one_run_and_sum_to_its_iteration(drawn):
    _, out = drawn
    parts = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")
    for line in table(out / "ssfusion.fig13_here.csv"):
        assert sum(float(line[part]) for part in parts) == pytest.approx(float(line["iteration_s"]), rel=1e-4)
        assert float(line["hidden_comm_s"]) == pytest.approx(0.15 * float(line["iteration_s"]), rel=1e-4)


def test_quality_uses_the_metric_that_the_workload_has(drawn):
    _, out = drawn
    lines = table(out / "ssfusion.fig12.csv")
    assert {(line["model"], line["metric"]) for line in lines} == {
        ("vgg_small_cifar10", "top1"),
        ("lstm_wikitext2_small", "perplexity"),
        ("no long row", ""),
    }
    assert {line["panel"][:3] for line in lines if not line["metric"]} == {"(a)", "(b)", "(c)", "(d)"}


@pytest.mark.slow
@pytest.mark.nightly
def test_equal_rows_give_equal_bytes_in_another_process(drawn, tmp_path):
    rows, out = drawn
    (tmp_path / "rows.jsonl").write_text("".join(r.to_json() + "\n" for r in reversed(rows)))
    program = (
        "import sys; from pathlib import Path\n"
        "from experiments.common.figures.drawing import draw_all; from ssfx.lab.results.store import read_rows\n"
        f"draw_all({AGAIN}, read_rows(Path('rows.jsonl')), Path('again'))\n"
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "86400"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    for path in (tmp_path / "again").glob("[!.]*"):
        assert (tmp_path / "again" / path.name).read_bytes() == (out / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_all_origins_can_be_drawn_together_and_are_told_apart(tmp_path):
    rows = [row(scheme=s, kind=kind, world_size=p) for kind in KINDS for s in ("ddp", "per_tensor") for p in (1, 2)]
    draw_all(["ssfusion.fig11_here", "ssfusion.fig13_here"], rows, tmp_path)
    assert {line["origin"] for line in table(tmp_path / "ssfusion.fig11_here.csv")} == set(KINDS)


def test_a_case_measured_again_on_the_same_machine_replaces_the_older_run(tmp_path):
    old = row(date="2026-01-01", metrics={"throughput_samples_per_s": 1.0})
    new = row(date="2026-02-01", metrics={"throughput_samples_per_s": 2.0})
    for rows in ([old, new], [new, old]):
        assert discover()["ssfusion.fig11_here"].select(rows) == [new]


def test_two_figures_of_one_name_are_refused(tmp_path, monkeypatch):
    source = (figures.experiments_dir() / "edition2026" / "figures.py").read_text()
    for paper in ("one", "two"):
        (tmp_path / paper).mkdir()
        (tmp_path / paper / "figures.py").write_text(source)
    monkeypatch.setattr(figures, "experiments_dir", lambda: Path(tmp_path))
    with pytest.raises(ValueError, match=r"two.figures\.py: a figure named 'edition2026\.map' exists already"):
        discover()


def test_findings_quote_the_rows():
    found = discover()
    rows = [*throughput(), *quality()]
    said = found["ssfusion.fig11_here"].finding(found["ssfusion.fig11_here"].select(rows))
    assert "(n = 3 or more): " in said
    assert "resnet_tiny: 0.67x (per_tensor) to 0.95x (fused_all, ranges overlap)" in said
    assert "one run each, so no order is certain" in found["ssfusion.fig11_here"].finding(
        [row(), row(scheme="per_tensor")]
    )
    assert "resnet_tiny 15%" in found["ssfusion.fig13_here"].finding(found["ssfusion.fig13_here"].select(rows))
    assert "ddp 0.5" in found["ssfusion.fig12"].finding(found["ssfusion.fig12"].select(rows))


@pytest.mark.parametrize("missing", ["throughput_samples_per_s", "iteration_s", "other_s"])
def test_a_row_without_a_value_fails_its_figures(tmp_path, missing):
    bad = row(scheme="per_tensor", metrics={missing: None})
    found = draw_all(["ssfusion.fig11_here", "ssfusion.fig13_here"], [row(), bad], tmp_path)
    failed = [one.said for one in found if one.state == "failed"]
    assert failed
    assert all(bad.run_id in said and missing in said for said in failed)


def test_a_figure_that_lacks_runs_says_so_when_it_is_drawn_and_when_it_is_unchanged(tmp_path):
    for state in ("drawn", "unchanged"):
        (one,) = draw_all(["ssfusion.fig12"], seeds("ddp", 0.5), tmp_path)
        assert one.state == state
        assert "(b) small VGG on CIFAR-10, for the paper's VGG-19 on CIFAR-100: 18 runs, about 54 minutes" in one.said


def test_a_long_row_without_quality_fails_its_figure(tmp_path):
    bad = long_row("ddp", 0.5)
    del bad.metrics["top1"]
    (one,) = draw_all(["ssfusion.fig12"], [bad], tmp_path)
    assert "neither f1 nor top1 nor perplexity" in one.said
