"""Advice on sharded models: torch's own sharding is the baseline, and nothing is claimed that nobody checked."""

from ssfx.advice import advise
from ssfx.advice.answer import answer_of
from ssfx.advice.details import NEVER_SHARDED, details
from ssfx.config.advice_question import resolve_setting

WORDS = "model=llama3_8b cluster=aws_p5 precision=bf16 cluster.link=eth_10_tcp"
NAMES = ("ddp", "ddp_fp16", "fused_all", "powersgd", "topk", "auto", "ssfusion_oi")


def test_a_model_that_does_not_fit_whole_has_advice_in_shards() -> None:
    advice = advise(resolve_setting(f"{WORDS} sharding=hsdp reduce_dtype=bf16".split()), NAMES)
    titles = [one.trial.title for one in advice.entries]
    assert advice.dense.scheme == "ddp"
    assert {"auto", "powersgd", "topk"} <= {one.scheme for one in advice.entries}
    assert "ssfusion_oi" in dict(advice.left_out)
    assert all(one.trust is None for one in advice.entries)
    needed = advice.setting.memory(advice.dense.trial)
    assert needed is not None
    assert needed.fits
    assert needed.sharded
    assert "hsdp, 2 replicas of 8 shards" in " ".join(str(advice).split())
    assert f"checked: {NEVER_SHARDED}" in details(advice)
    assert any(title.startswith("ddp") for title in titles)


def test_faster_methods_are_named_but_not_recommended() -> None:
    answer = answer_of(advise(resolve_setting(f"{WORDS} cluster.inter.gbps=1 sharding=hsdp".split()), NAMES))
    assert answer.now.work < 1
    assert (answer.answer, answer.alone_is_faster) == ("unknown", False)
    assert answer.best is None
    assert {one.name for one in answer.faster} >= {"powersgd", "topk"}


def test_one_device_that_holds_the_whole_model_may_be_faster_than_shards() -> None:
    words = "model=gpt2 cluster=box cluster.nodes=2 cluster.devices_per_node=1 cluster.link=1gbe sharding=fsdp"
    answer = answer_of(advise(resolve_setting(words.split()), ["ddp"]))
    assert (answer.answer, answer.alone_is_faster) == ("no", True)


def test_sums_over_shards_are_tried_in_few_bits() -> None:
    setting = resolve_setting(f"{WORDS} sharding=fsdp".split())
    assert {given["compressor"].partition("(")[0] for given in setting.variants("ddp_quantized")} == {"qsgd", "onebit"}
    nodes = f"(ranks_per_node={setting.cluster.devices_per_node})"
    assert all(lane.collective.endswith(nodes) for _, lane in setting.best("ddp_quantized").plan.lanes())
    advice = advise(setting, NAMES)
    left = dict(advice.left_out)
    assert "residual of the whole model" in left["topk"]
    assert "does not sum over shards" in left["powersgd"]


def test_no_answer_says_that_all_stayed_dense_where_something_compresses() -> None:
    fast = answer_of(
        advise(resolve_setting(["model=llama3_8b", "cluster=aws_p5", "precision=bf16", "sharding=hsdp"]), NAMES)
    )
    assert (fast.answer, fast.faster, fast.unchecked) == ("no", (), ())


def test_weights_in_fewer_bits_are_part_of_every_answer() -> None:
    words = f"{WORDS} sharding=fsdp"
    plain, low = (resolve_setting(f"{words} {more}".split()).best("ddp") for more in ("", "weights=fp8"))
    assert low.simulated.volumes.sent < plain.simulated.volumes.sent
    assert low.iteration_s < plain.iteration_s
