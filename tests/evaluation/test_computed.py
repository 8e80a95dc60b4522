"""Computed values beside numbers derived by hand."""

import pytest

from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.verdicts import Verdict, paper_says
from experiments.common.evaluation.judging import complete, half_digit, held, says
from experiments.common.evaluation.low_rank import compressed_buffers, dense_buffers, factors, of, share_below
from experiments.common.evaluation.selection_example import WORKERS, build_up_without_common_part, run
from experiments.common.evaluation.sketch_example import bias, linearity, relative_noise, wrong_blocks, zeros_skipped
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines
from experiments.s2reducer.figures.computed import gnmt, lstm, lstm_sparsity


def test_factors_of_a_model_follow_from_its_shapes() -> None:
    found = factors("resnet50", 4)
    assert found.numel == 25_557_032
    classifier = 2048 * 1000
    at = found.whole.index(classifier)
    assert (found.p[at], found.q[at]) == (4 * 1000, 4 * 2048)
    assert found.vectors == 53_120 + 1000  # of all batch norms, and the bias of the classifier


def test_ratios_count_vectors_once() -> None:
    found = of("ResNet-50")
    sent = sum(found.p) + sum(found.q) - found.vectors
    assert found.power_ratio == found.numel / sent
    assert found.turns_ratio > 1.7 * found.power_ratio


def test_buffers_of_factors_are_as_many_as_the_paper_has() -> None:
    found = of("ResNet-50")
    assert compressed_buffers(found.p, found) == compressed_buffers(found.q, found) == 4
    assert dense_buffers(found) == (4, 5, 5)
    assert share_below([1, 10, 100, 1000], 100) == 50


def test_one_lstm_layer_has_eight_matrices_and_two_biases() -> None:
    assert lstm(3, 2) == 4 * (2 * 3 + 2 * 2) + 2 * 4 * 2
    embeddings, rest = gnmt(1024, 4)
    assert embeddings == 2 * 32_317 * 1024
    assert rest > gnmt(512, 4)[1] * 3


def test_a_batch_of_480_words_leaves_99_percent_of_the_embedding_without_a_gradient() -> None:
    assert lstm_sparsity() == pytest.approx(1 - 255.9 / 28_869)
    found = {one.claim: one for one in discover()["s2reducer.table1"].judge([])}
    lstm = found["s2reducer.table1.lstm.sparsity"]
    assert (lstm.outcome, lstm.source, lstm.ours) == ("agrees", "computed", "99.11 percent")
    assert "30 words as PowerSGD's" in lstm.reason
    gnmt8 = found["s2reducer.table1.gnmt8.sparsity"]  # of another text than the paper's
    assert (gnmt8.outcome, gnmt8.ours) == ("not comparable", "97.8 % of 64 sentences, 96.4 % of 128 sentences")
    (some,) = [one for one in discover()["s2reducer.text.setup"].judge([]) if "emb_sparsity" in one.claim]
    assert some.outcome == "agrees"


def test_digits_that_are_printed_decide_what_is_equal() -> None:
    assert (half_digit(25.6), half_digit(67.0), half_digit(0.001)) == (0.05, 0.5, 0.0005)
    assert held("acpsgd.table1.resnet50.params", 25.557).outcome == "agrees"
    assert held("acpsgd.table1.resnet50.params", 25.7).outcome == "disagrees"
    assert held("mergecomp.alg2.iters", 19).outcome == "agrees"  # an upper bound
    assert held("s2reducer.appB1.ratio", (12.0, 20.0)).outcome == "agrees"  # a lower bound


@pytest.mark.parametrize(
    ("claim", "ours", "outcome"),
    [
        ("mergecomp.fig2.drop30", (-0.81, 0.288), "disagrees"),  # more than 30 % was lost
        ("mergecomp.fig2.drop30", (0.108, 0.717), "partly"),
        ("mergecomp.fig2.drop30", (0.31, 0.99), "agrees"),
        ("acpsgd.fig12.ssgd", 0.14, "disagrees"),  # 10 %, and not one tenth more or less a half
        ("acpsgd.fig12.ssgd", 0.104, "agrees"),
    ],
)
def test_a_fraction_is_printed_in_percent(claim: str, ours: float | tuple[float, float], outcome: str) -> None:
    assert held(claim, ours).outcome == outcome


def test_what_is_more_than_a_number_is_shown_as_one_bound() -> None:
    assert paper_says(claims_by_id()["mergecomp.fig2.drop30"]) == "30 % (lower bound)"
    assert paper_says(claims_by_id()["mergecomp.fig3.enc"]) == "0.1 ms (lower bound)"
    assert paper_says(claims_by_id()["micro.iii.cltk_equal"]) == "1 x"


def test_a_claim_is_never_left_out_nor_judged_twice() -> None:
    one = says("mergecomp.lemma1", True, "2048")
    done = complete(["mergecomp.text.theory"], [one], "ssfx figures mergecomp.text.theory")
    assert [verdict.claim for verdict in done] == [claim.id for claim in claims_of("mergecomp.text.theory")]
    rates = {"mergecomp.theorem1", "mergecomp.theorem2"}  # of which no run says anything
    found = {verdict.claim: verdict.outcome for verdict in done if verdict.claim != one.claim}
    assert found == {claim: "not comparable" if claim in rates else "not attempted" for claim in found}
    with pytest.raises(ValueError, match="twice"):
        complete(["mergecomp.text.theory"], [one, one], "")
    with pytest.raises(ValueError, match="elsewhere"):
        complete(["mergecomp.text.setup"], [one], "")
    assert isinstance(done[0], Verdict)


@pytest.mark.parametrize("claim", ["mergecomp.setup.e2e_gpus", "acpsgd.setup.conv.gpus", "acpsgd.setup.conv.rank"])
def test_long_runs_have_the_ranks_and_the_rank_of_the_papers_trainings(claim: str) -> None:
    figure = discover()[claims_by_id()[claim].artifact]
    one = headlines([figure], [])[claim]
    assert (one.outcome, one.source, one.ours.split()[0]) == ("agrees", "restated", "4")


def test_sparsifiers_select_as_their_rules_say() -> None:
    topk, cltk, micro = run("topk"), run("cltk"), run("micro")
    assert 1 < topk.ratio <= WORKERS
    assert topk.overlap > 0
    assert (cltk.ratio, cltk.deciding, cltk.idle) == (1, 1, WORKERS - 1)
    assert (micro.overlap, micro.idle) == (0, 0)
    assert 0.9 < micro.ratio < 1.1
    assert build_up_without_common_part() == pytest.approx(100 * (1 - 0.99**16))


def test_build_up_is_a_density_and_grows_with_the_workers() -> None:
    (one,) = [verdict for verdict in discover()["micro.fig1"].judge([]) if verdict.claim == "micro.intro.buildup_grows"]
    ratios = [run("topk", workers=count).ratio for count in (2, 4, 8, 16)]
    assert (one.outcome, one.source) == ("agrees", "restated")
    assert ", ".join(f"{ratio:.1f}x" for ratio in ratios) in one.ours
    assert run("topk", workers=1).ratio == 1 < ratios[0] < 2.1
    assert run("micro", workers=4).overlap == 0


def test_a_sketch_is_linear_and_unbiased_but_noisy() -> None:
    assert linearity() < 1e-9
    assert zeros_skipped() == 0
    assert wrong_blocks() == 0
    mean, error = bias()
    assert abs(mean) < 3 * error
    assert relative_noise(0.5) == pytest.approx(2.0, rel=0.2)  # one over lambda
