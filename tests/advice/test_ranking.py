"""What advice claims: who wins, how sure that is, and why nobody can win more."""

import json
from dataclasses import replace

import pytest
from advice.settings import setting

from ssfx.advice import advise, break_evens
from ssfx.advice.answer import answer_of
from ssfx.advice.cases import simulate_case
from ssfx.advice.details import details
from ssfx.advice.ranked import surely_less
from ssfx.advice.ranking import ranges
from ssfx.advice.screen import facts
from ssfx.advice.sending import recorded_spec
from ssfx.advice.setting import TUNED
from ssfx.advice.trust import Trust, trust_besides, trust_in, trust_in_sending
from ssfx.config.advice_question import resolve_setting
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.schemes import schemes

SOME = ["topk", "per_tensor", "fused_all", "powersgd", "parallax", "ssfusion_oi"]


def test_dense_wins_on_an_infinitely_fast_network_and_the_answer_says_so():
    advice = advise(setting(gbps=1e7, latency_s=0.0))
    assert advice.entries[0].trial.tuned
    answer = answer_of(advice)
    assert answer.answer == "no"
    assert answer.most < 0.01
    assert facts(answer)["NO"].startswith(f"tuned dense ({advice.dense.trial.title}) is as fast: ")


def test_compression_wins_on_a_slow_network_and_nothing_beats_the_bound():
    advice = advise(setting(gbps=1.0), SOME)
    assert advice.compressing[0].vs_dense > 1.5
    most = answer_of(advice).most
    assert most == 1 - advice.setting.profile.alone_s() / advice.dense.iteration_s
    assert all(1 - entry.iteration_s / advice.dense.iteration_s <= most for entry in advice.entries)


def test_every_scheme_is_compared_once_with_tuned_dense():
    advice = advise(setting())
    assert sorted(entry.name for entry in advice.entries) == sorted(
        [*(one.name for one in schemes if not one.in_rounds), "ddp_1bit", "ddp_4bit"]
    )
    assert not advice.left_out
    tuned = min(entry.iteration_s for entry in advice.entries if entry.scheme in TUNED)
    for entry in advice.entries:
        assert entry.vs_dense == pytest.approx(tuned / entry.iteration_s)
        assert entry.work == pytest.approx(8 * advice.setting.profile.alone_s() / entry.iteration_s)
        assert entry.samples_per_s == pytest.approx(8 * 8 / entry.iteration_s)


def test_tuned_dense_is_the_fastest_of_all_variants():
    where = setting(gbps=100.0)
    times = [where.trial("ddp", given).iteration_s for given in where.variants("ddp")]
    assert where.best("ddp").iteration_s == min(times) < max(times)
    assert advise(where, []).dense.iteration_s == min(where.best(name).iteration_s for name in TUNED)


@pytest.mark.parametrize(
    "name", [name for name in schemes.names() if hasattr(schemes[name].defaults, "ranks_per_node")]
)
def test_schemes_that_know_of_nodes_have_those_of_the_cluster_as_commands_give_them(name):
    words = (
        "model=resnet50 cluster=box cluster.nodes=2 cluster.devices_per_node=4 cluster.device=a100 cluster.link=25gbe"
    )
    (case,) = resolve_simulations(
        [*words.split(), f"scheme={name}", *(["scheme.quality=normal"] if name == "auto" else [])]
    )
    found = resolve_setting(words.split()).best(name)
    if "bucket_cap_bytes" not in found.options:
        assert found.iteration_s == pytest.approx(simulate_case(case)[1].iteration_s)
    assert "ranks_per_node=4" in "".join(lane.collective for _, lane in found.plan.lanes()) or name == "auto"


def test_the_answer_does_not_depend_on_the_order_of_the_schemes():
    where = setting()
    forward, backward = advise(where, SOME), advise(where, reversed(SOME))
    assert [entry.trial.plan.digest for entry in forward.entries] == [e.trial.plan.digest for e in backward.entries]
    assert [entry.rank for entry in forward.entries] == [entry.rank for entry in backward.entries]
    assert details(forward) == details(backward)


def test_overlapping_error_bars_share_their_ranks():
    def of(error, *seconds):
        return ranges([(one, error) for one in seconds])

    assert of(0.0, 1.0, 1.05, 2.0) == [(1, 1), (2, 2), (3, 3)]
    assert of(0.05, 1.0, 1.05, 2.0) == [(1, 2), (1, 2), (3, 3)]
    assert of(0.1, 1.0, 1.15, 1.3) == [(1, 2), (1, 3), (2, 3)]
    assert of(0.0, 1.0, 1.0) == [(1, 2), (1, 2)]
    assert ranges([(1.0, 0.0), (1.15, 0.5), (1.3, 0.0)]) == [(1, 2), (1, 3), (2, 3)]


def test_an_order_within_the_error_bar_is_not_claimed():
    sure, unsure = Trust("recorded", 0.0, 0.0, 9), Trust("recorded", 0.4, 0.5, 9)
    clear, vague = (advise(setting(gbps=30.0), SOME, trust) for trust in (sure, unsure))
    assert not clear.unclear(clear.compressing[0])
    assert vague.unclear(vague.compressing[0])


def test_two_times_are_compared_and_not_their_ranks():
    """1.10 < 1.125, although a third time may lie between that is in no order with either."""
    assert surely_less(1.0, 1.25, 0.1)
    assert not surely_less(1.0, 1.2, 0.1)


def test_a_scheme_without_times_is_left_out_with_the_reason():
    where = setting()
    known = {name: codec for name, codec in where.system.codecs.items() if name != "topk"}
    poor = replace(where, system_of=lambda cluster: replace(where.system, codecs=known))
    advice = advise(poor, ["topk", "per_tensor"])
    (left,) = advice.left_out
    assert left[0] == "topk"
    assert "no times for compressor topk" in left[1]
    assert "topk" not in [entry.scheme for entry in advice.entries]


def test_compressors_with_times_of_several_kinds_are_told():
    where = setting()
    printed = replace(where.system.codecs["topk"], origin=Origin("published"))
    mixed = replace(where, system_of=lambda _: replace(where.system, codecs={**where.system.codecs, "topk": printed}))
    told = "times of compressors are not of one kind (dgc nominal; topk published)"
    two, one = (advise(here, ["topk", "per_tensor"]) for here in (mixed, where))
    assert any(line.startswith(told) for line in details(two))
    assert not any("not of one kind" in line for line in details(one))


def test_one_device_has_nothing_to_compare():
    with pytest.raises(ConfigError, match="one device exchanges nothing"):
        advise(setting(nodes=1))


def test_measured_exchanges_have_no_break_even():
    where = setting()
    fixed = replace(where, system_of=lambda cluster: where.system)
    assert not break_evens(advise(fixed, ["topk"]))
    assert break_evens(advise(where, ["topk"])).keys() == {"topk"}


def test_trust_is_that_of_the_group_of_the_same_kind(tmp_path):
    path = tmp_path / "validation.json"
    assert trust_in("measured", path) is None
    path.write_text(json.dumps({"recorded": {"mean": 0.04, "max": 0.2, "count": 192}}))
    assert trust_in("measured", path) == trust_in("emulated", path) == Trust("recorded", 0.04, 0.2, 192)
    assert trust_in("nominal", path) is None
    path.write_text(json.dumps({"published": {"mean": 0.04, "max": 0.2, "count": 192}}))
    assert trust_in("published", path) == Trust("published", 0.04, 0.2, 192)
    assert trust_in("nominal", path) == Trust("published", 0.04, 0.2, 192, borrowed=True)


def test_trust_in_a_way_of_sending_is_of_its_network_and_of_five_comparisons_at_least(tmp_path):
    path, tcp, node = tmp_path / "validation.json", "GPUs over TCP", "GPUs of one machine"

    def scored(sent, network, mean, count, **paper):
        return {"sent": sent, "network": network, "mean": mean, "max": 2 * mean, "count": count, **paper}

    ways = [scored("low-rank sums", tcp, 0.2, 3), scored("dense sums", tcp, 0.05, 5), scored("a2a", tcp, 0.01, 1)]
    ways += [scored("halves", node, 0.02, 4, paper="one"), scored("halves", node, 0.04, 4, paper="other")]
    total = {"mean": 0.1, "max": 0.4, "count": 90}
    near = {**total, "ways": [scored("low-rank sums", "CPUs", 0.07, 9), scored("micro", "CPUs", 0.3, 9)]}
    path.write_text(json.dumps({"published": {**total, "ways": ways}, "recorded": near}))
    names = ("dense sums", "low-rank sums", "a2a", "micro", "halves")
    told = {one: trust_in_sending("published", [one], tcp, path) for one in names}
    assert {name: (round(one.mean, 9), one.count, one.few) for name, one in told.items()} == {
        "dense sums": (0.05, 5, None),
        "low-rank sums": (0.2, 3, 3),  # further off than all others
        "a2a": (0.1, 90, 1),
        "micro": (0.1, 90, 0),
        "halves": (0.03, 8, 0),  # of both papers, on another network
    }
    assert all(one.network == tcp for one in told.values()), "never another network than was asked about"
    assert "too few for an error bar" in told["low-rank sums"].said
    assert told["a2a"].said == "10% off on average, at worst 40% (90 published steps); one of a2a over TCP"
    assert told["halves"].said == "3% off on average, at worst 8% (8 steps of halves, none over TCP)"
    assert "CPUs" not in told["micro"].said
    assert trust_in_sending("published", ["dense sums", "low-rank sums"], tcp, path) == told["low-rank sums"]
    assert trust_in_sending("published", ["low-rank sums", "s2_sketch"], tcp, path) is None
    besides = {paper: trust_besides("nominal", paper, path) for paper in ("one", "other", "ssfusion")}
    assert {paper: one and (one.mean, one.count) for paper, one in besides.items()} == {
        "one": (0.04, 4),
        "other": (0.02, 4),
        "ssfusion": None,  # of selections no step is here
    }


def test_every_whole_step_counts():
    """S2 Reducer's two, which are seven times too fast, too: "Checked" names it."""
    whole, sketch = trust_in("nominal"), trust_in_sending("nominal", ["s2_sketch"], "GPUs over TCP")
    assert whole.max > 6
    assert sketch.mean > 3
    assert trust_in_sending("nominal", ["dense sums"], "GPUs over TCP").mean < 0.05


def test_a_quality_is_known_of_networks_that_were_recorded_only():
    lstm = resolve_setting(["model=lstm_wikitext2_small", "cluster=acpsgd_10gbe"])
    entries = {one.scheme: one for one in advise(lstm, ["ddp_fp16", "topk", "ddp", "powersgd"]).entries}
    assert (entries["ddp"].more_steps, entries["topk"].more_steps) == (0.0, None)
    assert 0 <= entries["ddp_fp16"].more_steps <= 0.05
    assert entries["powersgd"].needed.share is not None
    assert entries["powersgd"].needed.source.startswith("low rank: ")
    assert entries["powersgd"].more_steps is None
    specs = [recorded_spec(name, lstm.network) for name in ("qsgd", "acpsgd", "topk")]
    assert specs == ["qsgd(norm=max)", "acpsgd", "topk"]
    large = resolve_setting(["model=bert_large", "cluster=acpsgd_10gbe"])
    assert recorded_spec("powersgd", large.network) == "powersgd"
