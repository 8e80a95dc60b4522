"""What one H200 took: what the package has of it, what nominal times are held against, and who says so."""

import pytest

from experiments.common.cli.validate import goals, published
from experiments.common.pages.recorded_runs import kernels_block, steps_block, trainings_block
from experiments.common.validation.one_gpu import SHEET, launched_of, one_gpu
from ssfx.compressors import compressors
from ssfx.core.errors import ConfigError
from ssfx.core.paths import data_dir
from ssfx.perf_model.measured_gpus import measured_gpu
from ssfx.perf_model.roofline import analytic_profile

STEPS, COMPRESSORS = one_gpu()


def test_the_file_says_what_was_measured_on_what_and_when():
    gpu = measured_gpu(SHEET)
    assert (gpu.origin.kind, gpu.origin.date, gpu.sheet) == ("measured", "2026-11-26", "h200")
    assert "H200" in gpu.origin.hardware
    assert gpu.origin.versions["triton"] == "3.6.0"
    assert all(len(commit) == 40 for commit in gpu.commits)
    assert (data_dir() / "gpus" / "h200.json").stat().st_size < 60_000
    assert len({(step.model, step.precision) for step in gpu.steps}) == len(gpu.steps) == 12
    assert {name for name in gpu.codecs if name not in compressors} == {"redsync_quant", "terngrad"}  # gone since
    assert len(gpu.codecs) == 21
    assert all(len(one.encode) == len(one.decode) == len(gpu.numel) for one in gpu.codecs.values())


def test_a_gpu_of_which_the_package_has_nothing_is_refused():
    with pytest.raises(ConfigError, match="unknown measured GPU 'h100'; choose one of: h200"):
        measured_gpu("h100")


def test_a_step_is_busy_for_less_than_its_wall_and_the_host_decides_where_it_takes_longer():
    for step in measured_gpu(SHEET).steps:
        assert step.busy_ms < min(step.wall_ms, step.profiled_wall_ms)
        assert step.host_ms <= step.wall_ms
        assert not step.host_bound or step.wall_ms == pytest.approx(step.host_ms, rel=0.06)
    assert {step.precision for step in measured_gpu(SHEET).steps if step.host_bound} == {"bf16", "tf32"}


def test_kernels_are_counted_nearly_as_they_were_launched():
    for step in measured_gpu(SHEET).steps:
        assert launched_of(step) == pytest.approx(step.kernels, rel=0.19)


def test_steps_are_held_against_the_wall():
    (pair,) = (pair for pair in STEPS.pairs if pair.panel == "bert_large tf32")
    assert pair.predicted == pytest.approx(analytic_profile("bert_large", "h200", 4, "tf32").alone_s())
    assert pair.actual == pytest.approx(55.9e-3)
    assert not pair.whole_step  # no error bar of advice rests on it
    assert STEPS.total.worst.panel == "resnet152 fp32"
    without = dict(STEPS.scores())["without resnet152 fp32"]
    assert without.count == STEPS.total.count - 1
    assert without.mean < 0.18  # 0.42 while steps knew no host
    assert without.maximum < 0.40


def test_compressors_are_held_against_calls_of_two_sizes():
    sets = dict(COMPRESSORS.scores())
    assert sets["1M elements"].count == sets["16M elements"].count == len(measured_gpu(SHEET).codecs)
    actual = {pair.panel: pair.actual for pair in COMPRESSORS.pairs}
    assert actual["topk, 1M elements"] == pytest.approx(336.5e-6)
    assert actual["topk, 16M elements"] == pytest.approx(410e-6)
    assert sets["1M elements"].mean < 0.18  # 0.72 while calls knew no host
    assert sets["16M elements"].mean < 0.23  # 0.49


def test_the_groups_have_no_goal_no_orderings_and_no_part_in_published_ones():
    assert goals([STEPS, COMPRESSORS]) == []
    assert published([STEPS, COMPRESSORS]) == []
    assert STEPS.total.orderings == COMPRESSORS.total.orderings == 0


def test_the_tables_of_the_pages_have_a_line_for_everything():
    assert len(steps_block().splitlines()) == 2 + 12
    assert len(trainings_block().splitlines()) == 2 + 4
    line = next(line for line in trainings_block().splitlines() if line.startswith("| bert_large, 4 "))
    assert "61.9 (44.4 to 69.3)" in line
    now = "3.8.0, write with one scan, as it is now"
    assert kernels_block().splitlines()[-1] == f"| {now} | accumulate + exact top-k | 14.0 | 11.7 | 7.1 |"
