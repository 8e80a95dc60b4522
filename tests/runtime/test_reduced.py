"""Reducers and collectives of several phases in the runtime: loss scales, bad steps, resumes, odd models, figures."""

from typing import Any

import pytest
from runtime import work_reduced as work
from runtime import work_reduced_models as models
from runtime.cases import in_turn, turns
from runtime.pool import Pool
from runtime.ranks import Ranks

Options = dict[str, Any]

TOPK: Options = {"compressor": "topk", "density": 0.05}
CASES: dict[str, Options] = {
    "oktopk": {"scheme": "oktopk", "density": 0.05, "tau_prime": 3, "tau": 4},
    "oktopk drifting": {
        "scheme": "oktopk", "density": 0.05, "tau_prime": 4, "tau": 3, "mode": "authors_vgg", "balance": "always"
    },
    "oktopk buckets": {"scheme": "oktopk", "density": 0.05, "tau_prime": 2, "tau": 2, "grouping": "cap"},
    "micro": {"scheme": "micro", "density": 0.05},
    "micro delta0": {"scheme": "micro", "density": 0.05, "delta0": 0.01},
    "gtopk": {"scheme": "gtopk", "density": 0.05},
    "spardl": {"scheme": "spardl", "density": 0.05},
    "spardl teams": {"scheme": "spardl", "density": 0.05, "teams": 3},
    "sparcml rd": {"scheme": "sparcml", **TOPK},
    "sparcml split": {"scheme": "sparcml", **TOPK, "algorithm": "split"},
    "sparcml dsar": {"scheme": "sparcml", **TOPK, "algorithm": "dsar"},
    "s2reducer": {"scheme": "s2reducer", "density": 0.05},
    "hipress": {
        "scheme": "hipress", **TOPK, "rule": "threshold", "compress_min_elems": 10, "sparse_op": "a2a_ag",
        "bulk_timeout_s": 100.0
    },
    "espresso": {"scheme": "espresso", **TOPK, "options": "gpu_div"},
    "union": {"scheme": "fused_all", **TOPK, "lane": "union_all_reduce"},
    "a2a_ag": {"scheme": "fused_all", **TOPK, "lane": "a2a_ag(aggregators=2)"},
    "omnireduce": {"scheme": "omnireduce"},
    "parallax": {"scheme": "parallax", "tables": "*weight"},
    "hierarchical": {"scheme": "hierarchical"},
}  # fmt: skip
DENSE = {"omnireduce", "parallax", "hierarchical"}
ESTIMATES = {"s2reducer"}
PROFILED = {"hipress", "espresso"}
BY_HAND = {"union", "a2a_ag"}
COLLECTIVES = (
    "ok_topk(tau_prime=2,tau=3)",
    "ok_topk(mode=authors_lstm,balance=always,tau_prime=4,tau=3)",
    "micro",
    "micro(force_one=false)",
    "gtopk",
    "spar_reduce_scatter",
    "sparcml_rd",
    "sparcml_split",
    "sparcml_dsar",
    "a2a_ag",
    "a2a_ag(aggregators=2)",
    "union_all_reduce",
)
QUICK = {"oktopk", "micro", "gtopk", "spardl", "sparcml dsar", "hipress"}


def cases(*left_out: str) -> pytest.MarkDecorator:
    """Return the mark for every case but some; those that say little more than others are slow."""
    names = [name for name in CASES if name not in left_out]
    return pytest.mark.parametrize(
        "case", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]
    )


# Espresso's plan depends on measured times, so no two runs of it are the same.
@cases("espresso")
def test_a_changing_loss_scale_changes_nothing_but_the_range(ranks: Ranks, case: str) -> None:
    # Scales are powers of two, so the scaled run is the other one bit by bit, thresholds and residuals included.
    for report in ranks.run(work.scaled, 3, CASES[case], 12, [0, 1, 5, 8, 9, 10]):
        assert report == {"differing": [], "kept": True, "scales": 4}


def test_a_state_saved_under_a_loss_scale_goes_on_without_one(ranks: Ranks) -> None:
    for norms in ranks.run(work.unscaled_later, 2, CASES["oktopk"]):
        assert norms[0] > 0
        assert norms[1] == pytest.approx(norms[0] / 256)


@cases("espresso", *ESTIMATES)  # the sketch's hashes are of the step's number
def test_a_run_with_bad_steps_equals_the_run_without_them(ranks: Ranks, case: str) -> None:
    # Of 11 steps some come after a bad one, or after several: steps that evaluate and repartition are among them.
    assert ranks.run(work.without_trace, 3, CASES[case], 11, [5, 5, 6, 7, 8, 8, 8, 9, 10]) == [[]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_resumed_after_any_step_is_the_same(ranks: Ranks, case: str) -> None:
    first = 5 if case in PROFILED else 0  # before that, what is planned depends on measured times
    assert ranks.run(work.resumes_anywhere, 3, CASES[case], range(first, 8)) == [[]] * 3


def test_a_state_in_memory_does_not_change_when_the_run_goes_on(ranks: Ranks) -> None:
    assert ranks.run(work.kept_state, 2, CASES["hipress"]) == [2, 2]


def test_a_new_plan_leaves_no_state_of_the_old_ones_collectives(ranks: Ranks) -> None:
    assert ranks.run(work.owners_of_collective_state, 2, CASES["oktopk"]) == [1, 1]


@cases()
def test_the_figures_of_a_step_are_what_was_exchanged(ranks: Ranks, case: str) -> None:
    for reports in ranks.run(work.figures, 3, CASES[case], 3):
        for report in reports:
            assert (report["reducers"] > 0) == (case not in DENSE)
            for figure in ("density", "missing", "bytes", "described"):
                told, found = report[figure]
                assert told == pytest.approx(found), figure
            assert report["spans"]


@pytest.mark.parametrize("compressor", ["chunk_topm", "dgc", "gaussiank", "mstopk", "redsync", "sidco"])
@pytest.mark.parametrize("case", ["hipress", pytest.param("sparcml rd", marks=pytest.mark.slow)])
def test_what_any_compressor_selects_reaches_a_reducer_in_order(ranks: Ranks, case: str, compressor: str) -> None:
    for reports in ranks.run(work.figures, 3, {**CASES[case], "compressor": compressor}, 2):
        for report in reports:
            assert report["reducers"] == 1
            assert report["density"][0] == pytest.approx(report["density"][1])


DTYPES = (["bfloat16", "float32"], ["float32", "float32"], ["float16", "bfloat16"])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "dtypes"), turns([case for case in CASES if case not in BY_HAND], DTYPES))
def test_empty_tied_frozen_unused_and_mixed_parameters(ranks: Ranks, case: str, dtypes: list[str]) -> None:
    rounding = 1e-6 if set(dtypes) == {"float32"} else 1e-2
    for report in ranks.run(models.odd, 3, CASES[case], dtypes):
        assert report["same"]
        assert report["worst"] < rounding or case in ESTIMATES
        assert set(report["used"]) != {"all_reduce"} or dtypes[0] != "float32"  # half as many bytes may go dense


@pytest.mark.slow
@in_turn("lane,world", COLLECTIVES, (3, 5))
def test_fewer_elements_than_ranks(ranks: Ranks, lane: str, world: int) -> None:
    options = {"scheme": "fused_all", "compressor": "topk", "density": 0.3, "lane": lane}
    for sizes in ([1], [1, 0, 1], [4, 1, 7]):
        for report in ranks.run(models.few, world, options, sizes):
            assert report["same"], sizes
            assert report["worst"] < 1e-6, sizes


@cases(*BY_HAND)
def test_a_model_of_one_element_is_dense(ranks: Ranks, case: str) -> None:
    for report in ranks.run(models.few, 3, CASES[case], [1]):
        assert report["same"]
        assert report["worst"] < 1e-6


@pytest.mark.slow
@in_turn("case,memory", [case for case in CASES if case not in DENSE], ("none", "lr_scaled"))
def test_memories_with_a_learning_rate_that_changes(ranks: Ranks, case: str, memory: str) -> None:
    for report in ranks.run(work.with_memory, 3, {**CASES[case], "memory": memory}):
        assert report["same"]
        assert report["finite"]
        assert report["skipped"] == 1
        assert report["kept"] == ([] if memory == "none" else ["residual"])


REFUSED = [
    *(({**CASES[case], "memory": m}, f"memory={m}") for m in ("dgc", "low_pass", "signum")
      for case in ("oktopk", "micro", "gtopk", "spardl", "hipress", "espresso")),
    *(({**CASES["s2reducer"], "memory": m}, f"memory={m}") for m in ("low_pass", "signum")),
    ({**CASES["oktopk"], "compressor": "dgc"}, "takes topk only"),
    ({**CASES["oktopk"], "sizes": "variable"}, "sizes"),
    ({**CASES["micro"], "compressor": "topk(value_dtype=float16)"}, "float32"),
    ({**CASES["s2reducer"], "compressor": "topk"}, "block_topk"),
    ({**CASES["sparcml rd"], "compressor": "randomk"}, "randomk"),
    ({**CASES["hipress"], "sizes": "variable"}, "sizes=variable"),
    ({**CASES["hipress"], "compressor": "fp16"}, "fp16"),
    ({**CASES["spardl"], "teams": 2}, "teams=1"),
    ({**CASES["hierarchical"], "ranks_per_node": 2}, "ranks_per_node=1"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "word"), REFUSED, ids=str)
def test_what_a_reducer_cannot_do_is_refused_in_one_line(ranks: Ranks, options: Options, word: str) -> None:
    for text in ranks.run(work.refusal, 3, options, 6):
        assert word in text
        assert "\n" not in text


def test_a_plan_made_later_is_checked_against_the_memory_too(ranks: Ranks) -> None:
    for text in ranks.run(work.refusal, 3, {"scheme": "espresso", **TOPK, "memory": "dgc"}, 6):
        assert "a2a_ag" in text


PAIRS = [
    ("oktopk", "micro"),
    pytest.param("spardl", "sparcml split", marks=pytest.mark.slow),
    pytest.param("a2a_ag", "parallax", marks=pytest.mark.slow),
    pytest.param("s2reducer", "gtopk", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_models_and_attaching_again_do_not_disturb_one_another(pool: Pool, one: str, other: str) -> None:
    both = [CASES[one], CASES[other]]
    assert pool.run(models.two_models, 3, both, False) == [[]] * 3
    assert pool.run(models.two_models, 3, both, True) == [[]] * 3
    assert pool.run(models.again, 3, *both) == [[]] * 3


@cases("espresso", "spardl teams")
def test_a_group_of_some_ranks(pool: Pool, case: str) -> None:
    assert pool.run(models.part_of_the_world, 3, CASES[case]) == [[]] * 3
