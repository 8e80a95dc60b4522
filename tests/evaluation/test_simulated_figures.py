"""Figures of the papers' clusters, from rows simulated on the fly: the same numbers as validation has."""

from pathlib import Path

import pytest

from experiments.common.evaluation.judging import held
from experiments.common.evaluation.mergecomp_panels import beside_fp32, fp32_factors
from experiments.common.evaluation.row_steps import NoRow, by_calibration, judge_predictions, ours_as_stated
from experiments.common.figures.discovery import discover
from experiments.common.validation import published_mergecomp as mergecomp
from experiments.common.validation import published_s2reducer as s2reducer
from experiments.common.validation.published_acpsgd import MODELS, Setup, ratios, table_3, timed
from experiments.common.validation.published_steps import Simulations, factor
from ssfx.advice.cases import simulate_case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.config.cases import resolve_job

EXPERIMENTS = (
    "acpsgd_models",
    "acpsgd_fusion",
    "acpsgd_sweeps",
    "mergecomp_clusters",
    "mergecomp_groups",
    "s2_sparse",
    "micro_clusters",
)


def simulated(experiment: str, *words: str) -> list[Row]:
    """Return rows as engine=simulate writes them, of the cases that the words choose."""
    rows = []
    for case in resolve_job([f"experiment={experiment}", *words]).cases:
        target, step = simulate_case(case)
        origin = Origin("simulated", f"{target.cluster.device} devices")
        rows.append(Row(case.run_id, case, step.metrics(case.world_size * case.batch_size), origin))
    return rows


@pytest.fixture(scope="module")
def block_sparse() -> list[Row]:
    return simulated("s2_sparse")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiments_hold_every_step_that_their_claims_need(experiment: str) -> None:
    """Cases are looked up as rows are, without simulating them: a claim without a row would silently stay open."""
    cases = resolve_job([f"experiment={experiment}"]).cases
    times = dict.fromkeys(("iteration_s", "exposed_comm_s", "comm_s", "sparsify_s"), 1.0)
    rows = [Row(case.run_id, case, times, Origin("simulated", "none")) for case in cases]
    calibrations = by_calibration(rows)
    assert set(calibrations) == ({"nominal"} if experiment == "micro_clusters" else {"nominal", "published"})
    needed = {
        "acpsgd_models": [*table_3(), *(one for one in ratios() if one.panel.startswith(("Fig. 2", "Fig. 3")))],
        "acpsgd_fusion": [one for one in ratios() if one.panel.startswith(("Fig. 9", "Fig. 10"))],
        "acpsgd_sweeps": [one for one in ratios() if one.panel.startswith(("Fig. 11", "Fig. 12", "Fig. 13"))],
        "mergecomp_clusters": [
            one for one in (*mergecomp.ratios(), *mergecomp.scaling_factors()) if not one.panel.startswith("Table")
        ],
        "mergecomp_groups": [one for one in mergecomp.ratios() if one.panel.startswith("Table")],
        "s2_sparse": list(s2reducer.ratios()),
    }.get(experiment, [])
    for steps in calibrations.values():
        for one in needed:
            assert one.value(steps) > 0, one.claim


def test_rows_give_what_simulating_on_the_spot_gives(block_sparse: list[Row]) -> None:
    from_rows = by_calibration(block_sparse)["published"]
    for one in s2reducer.ratios():
        assert one.value(from_rows) == pytest.approx(one.value(Simulations()))


def test_a_claim_is_held_in_its_own_unit() -> None:
    assert ours_as_stated("acpsgd.fig9.wfbp", 1.12) == pytest.approx(0.12)
    assert ours_as_stated("s2reducer.fig3.d.comm", 0.19) == pytest.approx(0.81)
    assert ours_as_stated("acpsgd.table3.bertbase.ssgd", 0.805) == pytest.approx(805)
    assert ours_as_stated("mergecomp.table3.fp16.g2", factor("mergecomp.table3.fp16.g2")) == pytest.approx(5.5)


@pytest.mark.parametrize(
    ("ours", "alone_s", "outcome", "word"),
    [
        (0.91, 0.7, "agrees", "FP32 alone has 70 % in this simulation"),
        (0.91, 0.968, "not comparable", "so that merging decides nothing"),  # FP32 scales as well without it
        (0.5, 0.968, "disagrees", "ours is 50 %"),
    ],
)
def test_a_scaling_factor_that_fp32_has_too_agrees_partly(ours: float, alone_s: float, outcome: str, word: str) -> None:
    words = ["experiment=mergecomp_clusters", "workload=resnet50_imagenet", "cluster.calibration=nominal"]
    rows = []
    for case in resolve_job(words).cases:
        seconds = dict.fromkeys(("iteration_s", "exposed_comm_s", "comm_s", "sparsify_s"), 1.0)
        if case.world_size == 1:
            seconds["iteration_s"] = alone_s
        rows.append(Row(case.run_id, case, seconds, Origin("simulated", "none")))
    own = held("mergecomp.fig8.sf", ours, tolerance=0.05, source="simulated", calibration="nominal")
    (one,) = beside_fp32(rows, [own], fp32_factors())
    assert one.outcome == outcome
    assert word in one.reason


def test_every_calibration_has_its_verdict(block_sparse: list[Row]) -> None:
    verdicts = judge_predictions(block_sparse, s2reducer.ratios())
    assert {one.calibration for one in verdicts} == {"nominal", "published"}
    assert len(verdicts) == 2 * len({one.claim for one in s2reducer.ratios()})
    assert all(one.source == "simulated" for one in verdicts)


def test_a_range_over_an_overlap_that_nobody_prints_says_so(block_sparse: list[Row]) -> None:
    found = discover()["s2reducer.fig4"].judge(block_sparse)
    said = {one.claim for one in found if "no overlap is printed" in one.reason}
    assert said == {"s2reducer.fig3.d.comm", "s2reducer.headline.comm", "s2reducer.fig3.f.comm"}


def test_a_step_that_was_not_simulated_is_named(block_sparse: list[Row]) -> None:
    steps = by_calibration(block_sparse)["nominal"]
    with pytest.raises(NoRow, match="acpsgd for resnet50 on acpsgd_10gbe"):
        steps.step(*timed("acpsgd", Setup("ResNet-50")))
    assert not judge_predictions(block_sparse, table_3())


def test_times_of_sorting_are_never_judged_for_ours_sorts_nothing() -> None:
    times = dict.fromkeys(("iteration_s", "exposed_comm_s", "comm_s", "sparsify_s"), 1.0)
    cases = resolve_job(["experiment=micro_clusters"]).cases
    rows = [Row(case.run_id, case, times, Origin("simulated", "none")) for case in cases]
    found = {one.claim: one for name in ("micro.fig1", "micro.fig6") for one in discover()[name].judge(rows)}
    for claim in ("micro.fig1.constant", "micro.fig6.slow", "micro.fig6.best"):
        assert found[claim].outcome == "not comparable", claim
        assert "sorts nothing" in found[claim].reason


@pytest.mark.parametrize("name", ["s2reducer.fig3", "s2reducer.fig4"])
def test_figures_are_drawn_from_rows(name: str, block_sparse: list[Row], tmp_path: Path) -> None:
    figure = discover()[name]
    rows = figure.select(block_sparse)
    assert figure.draw(rows, tmp_path)
    assert "S2 Reducer" in (tmp_path / f"{name}.csv").read_text()
    assert any(one.source == "simulated" for one in figure.judge(rows))
    assert figure.finding(rows)


def test_table_3_of_one_model_has_the_papers_marks(tmp_path: Path) -> None:
    rows = simulated("acpsgd_models", "workload=resnet50_imagenet", "cluster.calibration=nominal")
    figure = discover()["acpsgd.table3"]
    assert figure.draw(figure.select(rows), tmp_path)
    lines = (tmp_path / "acpsgd.table3.csv").read_text().splitlines()
    assert len(lines) - 1 == 4 * len(MODELS) or len(lines) - 1 == 4  # panels without rows are left out
    assert any("266" in line for line in lines)
