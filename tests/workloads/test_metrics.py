"""Metrics of quality against hand-made cases and the official scorers' examples."""

import math

import pytest
import torch

from ssfx.core.rows import METRICS
from ssfx.lab.workloads import datasets
from ssfx.lab.workloads.metrics.networks import classes_tally, tokens_tally
from ssfx.lab.workloads.metrics.tally import (
    QUALITY,
    added,
    answers_tally,
    better,
    bleu_tally,
    exact_match,
    f1,
    normalised,
    quality_of,
)


def test_every_quality_is_a_metric_of_rows() -> None:
    assert set(QUALITY) <= set(METRICS)


def test_top1_and_top5_count_right_classes() -> None:
    logits = torch.zeros(3, 10)
    logits[0, 4] = 1.0  # right
    logits[1, :5] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])  # the label is fifth
    logits[2, :6] = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])  # the label is sixth
    tally = classes_tally(logits, torch.tensor([4, 4, 5]))
    assert quality_of(tally) == {"top1": pytest.approx(1 / 3), "top5": pytest.approx(2 / 3)}
    assert set(quality_of(classes_tally(torch.eye(3), torch.arange(3)))) == {"top1"}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Eiffel Tower.", "eiffel tower"),
        ("an apple, a day", "apple day"),
        ("well-known", "wellknown"),
        ("Theory of a thea", "theory of thea"),
        ("THE", ""),
        ("\u00c9tat, c'est moi!", "\u00e9tat cest moi"),
    ],
)
def test_answers_are_normalised_as_squad_does(text: str, plain: str) -> None:
    assert normalised(text) == plain


def test_exact_match_and_f1_take_the_best_truth() -> None:
    truths = ["Denver Broncos", "The Broncos"]
    assert exact_match("the denver broncos!", truths) == 1.0
    assert exact_match("Broncos of Denver", truths) == 0.0
    assert f1("Broncos of Denver", truths) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1("Panthers", truths) == 0.0
    assert f1("a b b", ["b b b"]) == pytest.approx(0.8)  # words count as often as they stand in both; "a" is an article


def test_answers_of_shares_add_up() -> None:
    pairs = [("x", ["x"]), ("x y", ["y"]), ("z", ["y"])]
    whole, parts = answers_tally(pairs), added(answers_tally(pairs[:1]), answers_tally(pairs[1:]))
    assert whole == parts
    assert quality_of(whole) == {"f1": pytest.approx((1 + 2 / 3) / 3), "exact_match": pytest.approx(1 / 3)}


def test_perplexity_per_token_and_per_word_share_a_likelihood() -> None:
    targets = torch.tensor([[0, 1, 2, 3]])
    tally = tokens_tally(torch.zeros(1, 4, 8), targets, words=2.0)
    found = quality_of(tally)
    assert found["perplexity"] == pytest.approx(8)
    assert found["perplexity_per_word"] == pytest.approx(64)
    assert math.isinf(quality_of({"nats": 1e6, "tokens": 1.0, "words": 1.0})["perplexity"])


def test_bleu_of_shares_is_that_of_the_corpus() -> None:
    from sacrebleu import corpus_bleu

    found = ["the cat sat on the mat today", "a dog barked at the postman", "rain"]
    truth = ["the cat sat on a mat today", "the dog barked at the postman", "rain falls in the north"]
    shares = added(bleu_tally(found[:1], truth[:1]), bleu_tally(found[1:], truth[1:]))
    assert quality_of(shares) == {"bleu": pytest.approx(corpus_bleu(found, [truth]).score)}


def test_higher_is_better_but_for_perplexity() -> None:
    assert better("top1", 0.9, 0.9)
    assert not better("f1", 0.8, 0.9)
    assert better("perplexity", 9.0, 10.0)


@pytest.mark.parametrize("name", ["digits", "stdlib_text(seq_len=32,held_out_bytes=2048)", "generated_questions"])
def test_the_shares_of_ranks_are_the_whole(name: str) -> None:
    data = datasets.build(name)
    torch.manual_seed(0)
    shape = {"digits": (10,), "stdlib_text": (32, 256), "generated_questions": (2, 32)}[name.partition("(")[0]]

    class Guess(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(shape))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.weight * (1 + inputs.flatten(1).float().mean(1)).view(-1, *[1] * len(shape))

    model = Guess()
    whole = data.tally(model, 0, 1)
    parts = added(added(data.tally(model, 0, 3), data.tally(model, 1, 3)), data.tally(model, 2, 3))
    assert parts == pytest.approx(whole)
    assert data.evaluate(model) == pytest.approx(quality_of(parts))
