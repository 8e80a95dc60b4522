"""Figures of compressors: achieved density, and time to compress a tensor beside the published times."""

import csv
import importlib.util

import pytest
from docs.markdown import ROOT
from figures.synthetic import achieved_density, compressor_row, latencies, row

from experiments.common.claims.verdicts import span
from experiments.common.evaluation.gpu_times import times_ms
from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import draw_all
from experiments.ssfusion.figures.latency import TIMED_BY, points, published
from ssfx.core.errors import RunError
from ssfx.core.rows import Row
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.results.store import export, read_rows

DENSITY, FIG04, TABLE03 = "codecs.achieved_density", "ssfusion.fig4", "ssfusion.table3"


def table(rows, name, out):
    draw_all([name], rows, out)
    return list(csv.DictReader((out / f"{name}.csv").read_text().splitlines()))


def test_ratios_of_repeats_are_pooled_and_quantiles_are_theirs(tmp_path):
    lines = {line["codec"]: line for line in table(achieved_density(), DENSITY, tmp_path)}
    assert list(lines) == ["dgc", "sidco", "topk"]
    assert {(line["runs"], line["segments"], line["density"]) for line in lines.values()} == {("2", "200", "0.01")}
    assert [float(lines["sidco"][name]) for name in ("p5", "p25", "median", "p75", "p95")] == [0, 0.25, 0.25, 1, 1]
    assert [float(line["nothing_sent"]) for line in lines.values()] == [0, 0.1, 0]
    assert lines["topk"]["bins"] == "0.917:20 1:180"


def test_schemes_are_told_apart_when_there_are_several(tmp_path):
    rows = [*achieved_density(), row(experiment="achieved_density", scheme="fused_all", density_ratios={"0": 1})]
    assert "fused_all" in {line["codec"] for line in table(rows, DENSITY, tmp_path)}


def test_a_single_codec_is_named(tmp_path):
    rows = [one for one in achieved_density() if one.case.compressor == "dgc"]
    assert [line["codec"] for line in table(rows, DENSITY, tmp_path)] == ["dgc"]
    found = discover()[DENSITY].finding(rows)
    assert found == "sent over asked for, median (5th to 95th percentile): resnet_tiny: dgc 1 (1 to 1.3)"


def test_a_row_without_ratios_stops_the_drawing(tmp_path):
    bad = row(experiment="achieved_density", scheme="per_tensor")
    (one,) = draw_all([DENSITY], [bad], tmp_path)
    assert one.state == "failed"
    assert bad.run_id in one.said
    assert "says nothing of densities" in one.said


def test_ratios_survive_the_way_through_a_file_and_older_rows_have_none():
    one = achieved_density()[0]
    assert Row.from_json(one.to_json()) == one
    older = (
        one.to_json()
        .replace(',"density_ratios":{"-1":10,"0":90}', "")
        .replace('"density_ratios":{"-1":10,"0":90},', "")
    )
    assert Row.from_json(older).density_ratios == {}


def test_every_sparsifier_of_the_experiment_is_asked_for_one_density():
    cases = resolve_job(["experiment=achieved_density", "preset=smoke"]).cases
    assert len({case.compressor for case in cases}) == len(cases) == 7
    assert {(case.scheme, case.density, case.world_size) for case in cases} == {("per_tensor", 0.01, 2)}


def test_published_times_are_those_of_the_ledger():
    assert {nbytes: round(s * 1e3, 2) for nbytes, s in published("gpu").items()} == {
        10_000: 0.85,
        100_000: 0.89,
        1_000_000: 1.06,
        10_000_000: 1.82,
    }
    assert list(published("cpu").values()) == pytest.approx([1.49e-3, 1.81e-3, 3.22e-3, 8.74e-3])


def test_times_stand_beside_published_ones_under_their_own_origin(tmp_path):
    lines = table(latencies(), FIG04, tmp_path)
    ours = [line for line in lines if line["origin"] == "measured"]
    assert {line["codec"] for line in ours} == {"dgc", "gaussiank", "randomk", "redsync", "sidco"}
    assert len(ours) == 5 * 6
    assert [line["size_kb"] for line in lines if line["origin"] == "published"] == ["10", "100", "1000", "10000"] * 2
    one = next(line for line in ours if (line["codec"], line["size_kb"]) == ("dgc", "10000"))
    assert float(one["median_ms"]) == pytest.approx(2.6)
    assert float(one["p10_ms"]) < 2.6 < float(one["p90_ms"])
    found = discover()[FIG04].finding(latencies())
    assert "dgc 1.0x and 9.7x" in found


def test_machines_are_drawn_apart(tmp_path):
    rows = [compressor_row("dgc", 2_500, [1e-3, 2e-3], hardware=name) for name in ("one", "another")]
    assert {line["hardware"] for line in table(rows, FIG04, tmp_path)} == {"one", "another", "SSFusion Table III"}
    assert [line["hardware"] for line in table(rows, TABLE03, tmp_path)] == ["another", "one"]
    assert "not all there" in discover()[FIG04].finding(rows)


def test_the_table_of_device_and_host_is_of_the_host_alone(tmp_path):
    lines = table(latencies(), TABLE03, tmp_path)
    assert [line["size_kb"] for line in lines] == ["10", "100", "1000", "10000"]
    assert [line["gpu"] for line in lines] == ["0.85", "0.89", "1.06", "1.82"]
    found = discover()[TABLE03].finding(discover()[TABLE03].select(latencies()))
    assert found.startswith("CPU time here over the paper's: 0.069x at 10 KB")
    assert "no GPU" not in found


def test_a_level_of_the_papers_gpu_stands_beside_the_gpu_that_was_timed_and_is_not_judged():
    found = {one.claim: one for name in (TABLE03, FIG04) for one in discover()[name].judge(latencies())}
    encode = {4 * numel / 1000: ms for numel, (ms, _) in times_ms("dgc").items()}
    for claim, sizes in {
        "ssfusion.table3.gpu.10kb": (4.096, 16.384),  # on either side
        "ssfusion.table3.gpu.10000kb": (4194.304, 16777.216),
        "ssfusion.fig4.dgc.floor": (1.024, 4.096, 16.384, 65.536),
        "ssfusion.fig4.dgc.mid": (262.144,),
    }.items():
        one, own = found[claim], [encode[size] for size in sizes]
        assert (one.outcome, one.source) == ("not comparable", "measured")
        assert one.ours == span(min(own), max(own), "ms")
        assert one.reason == "an H200 was timed, not the paper's card"


def test_most_of_mergecomps_compressors_are_slow_and_flat_on_the_gpu_that_was_timed():
    found = {one.claim: one for one in discover()["mergecomp.fig3"].judge([])}
    for claim, outcome, words in (
        ("enc", "not comparable", "8 of 8 take longer at every size"),
        ("dec", "not comparable", "5 of 8 take longer at every size"),
        ("flat", "agrees", "8 of 8 rise by less"),
    ):
        one = found[f"mergecomp.fig3.{claim}"]
        why = "timed on one H200" if outcome == "agrees" else "an H200 was timed, not the paper's card"
        assert (one.outcome, one.source, one.reason) == (outcome, "measured", why)
        assert one.ours.startswith(words)
        assert one.command == "ssfx validate gpu"


def test_without_one_of_the_papers_sizes_or_codecs_nothing_is_drawn(tmp_path):
    for name, other in ((TABLE03, compressor_row("dgc", 100, [1.0, 1.0])), (FIG04, compressor_row("topk", 100, [1.0]))):
        (one,) = draw_all([name], [other], tmp_path)
        assert (one.state, one.files) == ("missing", ())
        assert one.said.startswith("python benchmarks/compressors")
    assert discover()[TABLE03].finding([]) == "none of the paper's sizes"


def test_a_row_without_times_is_named():
    bad = compressor_row("dgc", 100, [1.0])
    with pytest.raises(RunError, match=f"{bad.run_id}.*no times"):
        points([bad])


def test_the_benchmark_writes_rows_that_the_figures_draw(tmp_path):
    path = ROOT / "benchmarks" / "compressors.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_compressors", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    numel = 2_500
    times = benchmark.measured(benchmark.operations([(numel,)], 0.01, {"dgc", "randomk"}), seconds=0.0)
    stamp = "2026-01-01T00:00:00+00:00"
    conditions = {"started": stamp, "stopped": stamp, "background_cores": 0.2}
    export(benchmark.rows_of(numel, 0.01, times, conditions), tmp_path / "rows.jsonl")
    rows = read_rows(tmp_path / "rows.jsonl")
    assert [(one.case.compressor, one.case.memory, one.origin.kind) for one in rows] == [
        ("dgc", None, "measured"),
        ("randomk", None, "measured"),
    ]
    assert {"code", "versions", "hardware", "seed", "measured_together"} <= set(rows[0].manifest)
    assert [point.n for point in points(rows)] == [3, 3]
    assert [line["size_kb"] for line in table(rows, TABLE03, tmp_path)] == ["10"]


def test_rows_with_a_memory_are_left_out():
    assert discover()[FIG04].select([compressor_row("dgc", 100, [1.0, 1.0], memory="residual")]) == []
    assert discover()[FIG04].command == TIMED_BY
