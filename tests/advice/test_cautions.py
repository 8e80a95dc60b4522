"""Who is told that the host holds nominal steps, and what takes it out."""

import pytest

from ssfx.cli import main
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.target import target_at

SAID = "bound by the host, which issues"
WORDS = ["model=bert_large", "precision=bf16", "cluster=box", "cluster.nodes=1", "cluster.device=h100"]


def target(cluster="box", model="bert_large", kind="cuda", precision="bf16", **options):
    return target_at(ClusterChoice(cluster, options), None, kind, model, 4, "adamw", precision)


def told(one):
    return [sentence for sentence in cautions(one.profile, one.cluster) if sentence.startswith(SAID)]


def test_steps_that_the_host_holds_come_with_the_caution_and_compressors_take_its_time():
    held, free = target(device="h100"), target(device="h100", host_us=0)
    (sentence,) = told(held)
    assert sentence.endswith("cluster.host_us=0")
    assert "(25 us each, assumed)" in sentence
    assert not told(free)
    assert (held.cluster.host_bound, free.cluster.host_bound) == (True, False)
    small = 2**10
    assert held.system.codecs["topk"].encode(small) == pytest.approx(11 * 1.48 * 25e-6)
    assert free.system.codecs["topk"].encode(small) < held.system.codecs["topk"].encode(small) / 4


def test_a_host_that_was_timed_is_no_assumption():
    (sentence,) = told(target(device="h100", host_us=40))
    assert "(40 us each)" in sentence


def test_steps_that_the_device_holds_and_given_times_come_without():
    for one in (target("64gpu", precision="fp32"), target(model="bert_large(iteration_ms=253)", device="h100")):
        assert one.profile.origin.kind == "nominal"
        assert not one.profile.host_bound
        assert not told(one)


def test_a_host_has_no_effect_where_it_is_the_device_or_was_measured(tmp_path):
    with pytest.raises(ConfigError, match="CPUs are their own hosts"):
        target(precision="fp32", kind="cpu", device="cpu", host_us=5)
    one = target(device="h100")
    one.profile.save(tmp_path / "mine.json")
    with pytest.raises(ConfigError, match="whose times have a host in them"):
        target(model=str(tmp_path / "mine.json"), device="h100", host_us=5)


@pytest.mark.parametrize("words", [["advise"], ["simulate", "scheme=ddp,wfbp", "--why"], ["plan", "scheme=ddp"]])
def test_every_answer_says_it_once(words, capsys):
    assert main([*words, *WORDS]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"beware: {SAID}") == 1
