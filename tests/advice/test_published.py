"""Published quality: every point says where it stands, and an answer quotes only what holds for the question."""

import pytest

from ssfx.advice.published import Asked, local_updates, matching, optimizer_class, points, published_of, quotes, speaks
from ssfx.config.advice_question import resolve_setting

BOX = "cluster=box cluster.link=10gbe"
FOUR_BITS = {"compressor": "qsgd(bits=4,bucket=32,norm=max)"}


def lines(words, scheme, given=None):
    where = resolve_setting(f"{words} {BOX}".split())
    plan = (where.best(scheme) if given is None else where.trial(scheme, given)).plan
    return [
        one.text for one in quotes(published_of(plan, where.network), sum(one.numel for one in where.network.tensors))
    ]


def test_every_point_has_an_address_a_place_and_a_grade():
    assert len({one.id for one in points()}) == len(points()) > 250
    for one in points():
        assert one.address, one.id
        assert one.place, one.id
        assert one.grade in ("A", "B", "C"), one.id
        # Of a metric where more is better, worse is less.
        assert (one.worse_percent > 0) in ((one.compressed > one.dense), (one.compressed < one.dense)), one.id


def test_few_bits_of_a_decoder_are_quoted_with_their_tokens():
    (line,) = lines("model=gpt2_xl", "ddp_quantized", FOUR_BITS)
    assert "GPT 1.3B" in line
    assert "+1.19 % loss, about +21 % tokens" in line
    assert "no error feedback" in line
    assert "2410.15526" in line
    assert "Hadamard" not in line


def test_sources_that_disagree_stand_side_by_side():
    found = lines("model=resnet50 density=0.001", "per_tensor")
    assert [("1712.01887" in line, "deep-gradient-compression" in line) for line in found] == [
        (True, False),
        (False, True),
    ]
    assert "not the same recipe" in found[1]
    (selected,), (merged,) = (lines("model=resnet50 density=0.01", scheme) for scheme in ("per_tensor", "mergecomp"))
    assert "on ImageNet, SGD momentum: top-1 73.62 %, dense 75.4 % (GRACE" in selected
    assert "on CIFAR-10, " in merged


@pytest.mark.parametrize(
    ("words", "scheme"),
    [
        ("model=gpt2_xl", "powersgd"),  # recommenders alone, and conv nets with SGD
        ("model=resnet50 optimizer=adamw", "per_tensor"),
        ("model=bert_large density=0.01", "oktopk"),  # fine-tuned by its authors; nobody said that this is
        ("model=resnet50 density=0.03", "per_tensor"),
        ("model=lstm_wikitext2", "ssfusion_oi"),  # with SGD there, with Adam here
        ("model=vit_large optimizer=sgd", "per_tensor"),
    ],
)
def test_nothing_is_said_where_optimizer_task_family_or_ratio_differ(words, scheme):
    assert lines(words, scheme) == []


@pytest.mark.parametrize(("replicas", "tokens"), [(2, "-4 to +3 %"), (8, "+24 to +30 %"), (3, None)])
def test_local_updates_are_of_as_many_replicas(replicas, tokens):
    where = resolve_setting(["model=gpt2_xl", "cluster=acpsgd_10gbe"])
    found = [one.text for one in quotes(local_updates(where.network, replicas), 1.5e9)]
    assert [f"about {tokens} tokens" in line for line in found] == ([] if tokens is None else [True])


def test_another_size_is_said_and_only_the_nearest_counts():
    asked = Asked(("few bits",), "adam", "decoder", 3e10, ratio=8.0)
    (point,) = matching(asked)
    assert point.model == "GPT 1.3B"
    assert "yours is 23 times larger" in quotes([point], asked.parameters)[0].text


def test_what_no_answer_may_quote():
    """Second-hand numbers, other baselines, gaps of loss without tokens, and optimizers that changed."""
    silent = [one for one in points() if not speaks(one)]
    assert {"autoloco", "covenant", "demo", "megatron"} <= {one.source for one in silent}
    assert optimizer_class("AdamW in, Nesterov out") == optimizer_class("adam") != optimizer_class("SGD momentum")
