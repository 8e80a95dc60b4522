"""The answer: eight facts, what makes it yes or no, and what several devices are worth."""

import re
from dataclasses import replace

import pytest
from advice.settings import setting

from ssfx.advice import advise
from ssfx.advice.answer import Answer, answer_of
from ssfx.advice.rounds import RoundsRecord, holding
from ssfx.advice.screen import as_text, evidence, facts, first_screen
from ssfx.advice.setting import METHODS
from ssfx.config.advice_question import resolve_setting
from ssfx.planning.rounds import Rounds
from ssfx.schemes.search.recorded_network import Network

TWO = "cluster=box cluster.nodes=2 cluster.devices_per_node=1 cluster.device=rtx4090 cluster.link=1gbe"
BERT = "model=bert_large cluster=acpsgd_10gbe"
KNOWN = ["ddp", "ddp_fp16", "hierarchical", "hierarchical_fp16", "powersgd"]
RECORD = RoundsRecord("diloco", "", 128, 8, 8192, "transformer", "adamw", "made up", (3.0, 5.0), (1.1, 1.3), False)
LABELS = ["NOW", "FREE", "FASTER", "QUALITY", "FITS", "SURE?", "MORE"]


def asked(words: str, *names: str) -> Answer:
    return answer_of(advise(resolve_setting(words.split()), names or KNOWN))


def test_an_answer_is_eight_facts_and_what_is_published_is_behind_a_flag():
    answer = asked(BERT)
    assert list(facts(answer)) == ["YES", *LABELS]
    assert len(as_text(first_screen(answer)).splitlines()) == 9  # what was asked, and a line for each
    no = asked(f"model=gpt2 {TWO}", *KNOWN, "ddp_4bit")
    assert list(facts(no)) == ["NO", "NOW", "TO WIN", *LABELS[2:]]
    assert list(evidence(no)) == ["ROUNDS", "PUBLISHED"]
    assert "; diloco, unless over " in facts(no)["FASTER"]
    assert "; published: " in facts(no)["QUALITY"]
    assert len(as_text(first_screen(no)).splitlines()) == 9


@pytest.mark.parametrize("words", ["model=gpt2 cluster.nodes=2", "model=gpt2_large cluster.nodes=8"])
def test_the_longest_sentences_are_a_line_each(words):
    box = "cluster=box cluster.devices_per_node=8 cluster.device=a100 cluster.link=1gbe precision=bf16 batch_size=8"
    answer = asked(f"{words} {box} optimizer=adamw", *KNOWN, "hierarchical")
    assert len(as_text(first_screen(answer)).splitlines()) == 9


def test_yes_names_the_method_its_gain_and_the_line_to_type():
    answer = asked(BERT)
    assert answer.best is not None
    assert answer.best.name == "ddp_fp16"
    assert answer.best.vs_dense == pytest.approx(answer.dense.iteration_s / answer.best.iteration_s)
    assert facts(answer)["YES"].endswith('ssfx.attach(...,scheme="ddp_fp16")')
    now = facts(answer)["NOW"]
    assert f"32 GPUs do the work of {answer.now.work:.2g} (with it {answer.best.work:.2g})" in now
    clipping = answer.schemes[0]
    assert "clipped=True" in replace(clipping, trial=replace(clipping.trial, options={"clipped": True})).type
    assert "powersgd" in [one.name for one in answer.faster]
    assert "powersgd" in facts(answer)["FASTER"]
    assert "faster: unpublished" in facts(answer)["QUALITY"]


def test_where_it_is_yes_what_is_as_good_and_was_never_timed_is_named_before_local_updates():
    answer = asked("model=resnet152 cluster=64gpu cluster.inter.gbps=10", *KNOWN, "s2reducer", "micro", "auto")
    assert [one.name for one in answer.unchecked] == ["auto"]
    assert facts(answer)["FASTER"].startswith("s2reducer 4.8x, ")
    assert facts(answer)["FASTER"].endswith(f"auto {answer.unchecked[0].vs_dense:.1f}x: unchecked")


def test_devices_are_worth_what_one_alone_would_take():
    answer = asked(BERT)
    alone_s = answer.batch_size / answer.alone_samples_per_s
    for step in (answer.now, answer.dense):
        assert step.work == pytest.approx(32 * alone_s / step.iteration_s)
        assert step.samples_per_s == pytest.approx(32 * answer.batch_size / step.iteration_s)


def test_it_is_no_where_one_device_alone_is_faster_than_all():
    answer = asked(f"model=gpt2 {TWO}")
    assert answer.best is not None
    assert (answer.answer, answer.alone_is_faster) == ("no", True)
    assert answer.best.vs_dense > 1.9
    assert answer.best.work < 1
    said = facts(answer)["NO"]
    assert said.startswith("one rtx4090 alone is ")
    assert "as fast as both with torch's DDP" in said


def test_what_it_takes_for_several_devices_to_win_is_the_truth():
    answer = asked(f"model=gpt2 {TWO}")
    assert answer.pays_from_gbps is not None
    assert answer.fewer is not None
    link = "cluster.inter.gbps={:g} cluster.inter.efficiency={:g} cluster.inter.latency_s={:g}"
    inter = resolve_setting(f"model=gpt2 {TWO}".split()).cluster.inter
    below, above = (
        asked(f"model=gpt2 {TWO} " + link.format(times * answer.pays_from_gbps, inter.efficiency, inter.latency_s))
        for times in (0.9, 1.1)
    )
    assert (below.alone_is_faster, above.alone_is_faster) == (True, False)
    where = resolve_setting(f"model=gpt2 {TWO}".split())
    passes = answer.fewer.passes
    for number, wins in ((passes - 1, False), (passes, True)):
        took_s = where.accumulated(where.best("ddp_fp16"), number).iteration_s
        assert (2 * where.profile.alone_s(number) >= took_s) is wins
    assert f"accumulate={passes}" in facts(answer)["TO WIN"]


def test_accumulation_is_free_and_gives_half_of_the_devices():
    answer = asked(BERT)
    assert answer.fewer is not None
    assert answer.fewer.work >= 16 > answer.now.work
    assert f"accumulate={answer.fewer.passes}: {answer.fewer.work:.2g} of 32 GPUs' work" in facts(answer)["FREE"]
    assert asked("model=resnet50 cluster=64gpu").fewer is None


def test_the_slower_the_network_the_more_sixteen_bits_inside_nodes_gain():
    found = [asked(f"model=gpt2 cluster=box cluster.inter.gbps={gbps}").best for gbps in (25, 10, 1, 0.1)]
    gains = [one.vs_dense for one in found if one is not None]
    assert gains == sorted(gains)
    assert [one.name for one in found if one is not None] == ["hierarchical_fp16"] * 4
    assert gains[-1] > 1.95


def test_a_measured_step_tells_the_rate_at_which_it_takes_that_long():
    words = "model=gpt2 cluster=box iteration_ms=300"
    slow = asked(f"{words} cluster.inter.gbps=7", "ddp").now
    answer = asked(f"{words} cluster_iteration_ms={1e3 * slow.iteration_s}", "ddp")
    assert answer.now.iteration_s == pytest.approx(slow.iteration_s, rel=0.01)
    assert re.search(
        r"a link of (6.9\d|7|7.0\d) Gbit/s, the cluster has 25: find out why first", facts(answer)["MEASURED"]
    )


def test_a_family_that_is_said_holds_whatever_tensors_are_called():
    assert asked("model=gpt2 cluster=box family=lstm", "ddp", "ddp_fp16").best.more_steps == 0.0
    assert resolve_setting(["model=gpt2", "cluster=box", "family=lstm"]).network.family == "lstm"


def test_nodes_of_one_device_sum_nothing_inside_first():
    assert "hierarchical_fp16" not in setting().names()
    assert set(METHODS) <= set(resolve_setting(["model=gpt2", "cluster=box"]).names())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("cluster=box cluster.link=10gbe cluster.nodes=2 cluster.devices_per_node=1", True),
        ("cluster=64gpu cluster.nodes=2", False),
    ],
)
def test_local_updates_are_named_on_slow_networks_alone(words, named):
    answer = asked(f"model=gpt2_xl {words}", "ddp")
    assert any(name.startswith("DiLoCo, 2 replicas") for name, _ in answer.published) is named
    assert (answer.rounds_may_need is not None) is named
    said = evidence(answer).get("ROUNDS", "")
    assert ("diloco every 128: sooner, unless it needs over " in said) is named
    assert ("\nrecorded: +17.1 %, over 2.6x the steps, at every=128 on 4 ranks" in said) is named
    assert "DiLoCo" not in evidence(answer).get("PUBLISHED", "")


def test_rounds_are_between_nodes_and_have_evidence_or_a_break_even():
    words = "model=gpt2_large cluster=box cluster.link=1gbe cluster.nodes="
    eight, sixteen = (evidence(asked(f"{words}{nodes} train_steps=5000", "ddp"))["ROUNDS"] for nodes in (8, 16))
    assert eight.startswith("diloco every 128 between 8 groups of 8, outer_lr=1 outer_momentum=0 as they are few: ")
    assert (
        "\npublished: every 30 steps: +1.07 to +2.05 % loss, about +24 to +34 % tokens (arXiv 2503.09799; C4)" in eight
    )
    assert sixteen.endswith("\nno quality of them is recorded or published for 16 replicas")


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        *[({}, True), ({"every": 64}, True), ({"every": 32}, False), ({"ranks": 16}, True), ({"ranks": 4}, True)],
        *[({"ranks": 2}, False), ({"batch": 64}, False), ({"optimizer": "sgd"}, False), ({"scheme": "ddp"}, False)],
    ],
)
def test_a_record_holds_within_a_factor_of_two_of_rounds_ranks_and_batch(change, holds):
    """Eight groups of eight ranks with 2,048 tokens each are eight replicas of 16,384."""
    record = replace(RECORD, ranks=8, batch=16384)
    network = Network("transformer", "adamw", (), 64, 2048)
    found = holding("diloco", Rounds(128, ranks_per_group=8), network, 64, [replace(record, **change)])
    assert bool(found) is holds


@pytest.mark.parametrize(("times", "at_least", "says"), [(1.3, False, True), (50.0, False, False), (1.3, True, False)])
def test_rounds_compete_by_time_to_quality_where_a_record_holds(monkeypatch, times, at_least, says):
    record = replace(RECORD, times=(1.1, times), at_least=at_least)
    monkeypatch.setattr("ssfx.advice.rounds.records", lambda: [record])
    words = "model=gpt2_large cluster=box cluster.link=1gbe cluster.nodes=8 batch_size=2"
    answer = asked(words, "ddp")
    said = evidence(answer)["ROUNDS"]
    assert answer.rounds_are_sooner is says
    assert ("sooner by recorded quality, as none needed over" in said) is says
    assert "\nrecorded: +3.0 % to +5.0 %, " in said
    assert f"{'over ' if at_least else ''}{times:.2g}x the steps, at every=128 on 8 ranks of 8,192 tokens" in said


def test_rounds_that_do_not_fit_are_not_named():
    """A device of 48 GB holds dense training, and not the outer weights of rounds beside it."""
    words = "model=gpt2_xl cluster=box cluster.nodes=2 cluster.devices_per_node=1 cluster.link=10gbe"
    fits = {device: asked(f"{words} cluster.device={device}", "ddp").rounds_may_need for device in ("a100", "l40s")}
    assert fits["a100"] is not None
    assert fits["l40s"] is None


def test_rounds_may_need_as_many_times_the_steps_as_their_step_is_shorter():
    slow = resolve_setting(["model=gpt2_xl", "cluster=box", "cluster.link=10gbe"])
    answer = answer_of(advise(slow, ["ddp"]))
    assert answer.rounds_may_need == pytest.approx(answer.known.iteration_s / slow.best("diloco").iteration_s)


def test_published_quality_is_never_a_yes():
    """4 bits have a published pair at this size, and no run of ssfx: they are faster, and not the answer."""
    answer = asked("model=gpt2_xl cluster=box cluster.link=10gbe", *KNOWN, "ddp_4bit")
    assert answer.best is not None
    assert answer.best.name == "hierarchical_fp16"
    assert ("ddp_4bit", "arXiv 2410.15526 (NeurIPS 2024)") in [(name, one.address) for name, one in answer.published]
    assert "about +21 % tokens" in evidence(answer)["PUBLISHED"]


def test_what_is_free_is_what_its_words_give():
    answer = asked(BERT)
    assert answer.fewer is not None
    more = asked(f"{BERT} accumulate={answer.fewer.passes}")
    assert more.dense.work == pytest.approx(answer.fewer.work, rel=0.01)
    assert more.fewer is None
    assert f"batch 4 each x {answer.fewer.passes}, " in as_text(first_screen(more))


def test_quality_says_for_which_other_task_alone_something_is_published():
    """SSFusion's points of BERT-large are of SQuAD."""
    unasked, asked_for = (asked(f"{BERT}{words}", "oktopk") for words in ("", " task=fine-tuning"))
    assert facts(unasked)["QUALITY"].endswith("; faster: published for task=fine-tuning")
    assert unasked.published == ()
    assert "oktopk: " in evidence(asked_for)["PUBLISHED"]
    assert asked_for.other_task == ""
