"""Simulated steps of sharded models: what cannot be otherwise, whatever the numbers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ssfx.advice.cases import memory_of, sensitivity, simulate_case
from ssfx.advice.sharded_steps import Asked, ShardedStep, plan_sharded, volumes_of
from ssfx.config.plans import resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.core.case import LATER_FIELDS, Case
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import Sharding, block_of, shard_shape, units_of
from ssfx.simulator.pricing.sharded_step import (
    Machine,
    Part,
    ShardedLowering,
    UnitCosts,
    gathered_bytes,
    row_bytes,
    shard_traffic,
)
from ssfx.simulator.pricing.task import Task
from ssfx.simulator.trace import chrome_trace

GPT = "model=gpt2_large cluster=box cluster.nodes=4 cluster.devices_per_node=8 cluster.device=h100 precision=bf16"
FOUR_BITS = "scheme=fused_all compressor=qsgd(bits=4,bucket=32,norm=max)"


def cases(words: str) -> list[Case]:
    return resolve_simulations(words.split())


def steps(words: str) -> list[ShardedStep]:
    found = [simulate_case(case)[1] for case in cases(words)]
    assert all(isinstance(step, ShardedStep) for step in found)
    return found  # type: ignore[return-value]


# ---- groups and shards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("model.layers.3.mlp.experts.7.up.weight", "model.layers.3"),
        ("h.11.ln_1.weight", "h.11"),
        ("layer1.0.conv1.weight", "layer1.0"),
        ("0.weight", "0"),
        ("embed.weight", ""),
        ("conv1.weight", ""),
        ("weights.3", ""),
    ],
)
def test_a_block_is_named_up_to_its_first_number(name: str, block: str) -> None:
    assert block_of(name) == block


def test_groups_hold_every_tensor_once_the_root_first() -> None:
    names = ["head", "h.1.b", "h.1.a", "h.0.b", "h.0.a", "embed"]
    units = units_of(TensorSpec(name, (3, 2)) for name in names)
    assert [unit.name for unit in units] == ["", "h.0", "h.1"]
    assert [spec.name for spec in units[0].tensors] == ["embed", "head"]
    assert [spec.name for unit in units[1:] for spec in unit.tensors] == ["h.0.a", "h.0.b", "h.1.a", "h.1.b"]


def test_shards_are_padded_to_the_first_and_a_scalar_is_whole() -> None:
    assert shard_shape((7, 5), 4) == (2, 5)
    assert shard_shape((2,), 4) == (1,)
    assert shard_shape((), 4) == ()


def test_a_sharding_that_cannot_be_is_refused() -> None:
    for wrong in ({"shards": 1}, {"replicas": 2}, {"kind": "hsdp"}, {"reduce_dtype": "int8"}):
        with pytest.raises(ValueError, match=r"sharding|of float32"):
            Sharding(**{"kind": "fsdp", "shards": 4, **wrong})


# ---- order ----------------------------------------------------------------------------------------------------------


def exchange(name: str, seconds: float) -> Part:
    return Part("exchange", name, seconds, 0.0)


def toy(blocks: int = 4, gather_s: float = 1.0, sum_s: float = 1.0, **machine: Any) -> list[Task]:
    """Return the tasks of a model whose every block computes 1 s in forward and 1 s in backward, and a root."""
    names = ["head", *(f"h.{i}.w" for i in reversed(range(blocks))), "embed"]
    tensors = tuple(TensorSpec(name, (8,)) for name in names)
    gaps = tuple(0.0 if name in ("head", "embed") else 1.0 for name in names)
    profile = Profile("toy", tensors, gaps, float(blocks), Origin("nominal"))
    units = units_of(tensors)
    costs = [
        UnitCosts([exchange(f"gather {unit.name}", gather_s)], [exchange(f"sum {unit.name}", sum_s)], [])
        for unit in units
    ]
    of = Machine(**{"copy_s_per_byte": 0.0, "lane_s": 0.0, "holds_up": False, "apart": False, **machine})
    tasks = ShardedLowering(profile, Sharding("fsdp", 2), units, costs, of).step(1, 0.0)
    from ssfx.simulator.pricing.schedule import schedule

    schedule(tasks)
    return tasks


def ends(tasks: Sequence[Task], name: str) -> list[float]:
    return [task.end_s for task in tasks if task.name == name]


def test_one_block_is_gathered_while_another_computes() -> None:
    tasks = toy(gather_s=0.5, sum_s=0.5)
    forward = [task for task in tasks if task.stage == "forward" and task.work_s]
    backward = [task for task in tasks if task.stage == "backward" and task.work_s]
    # The root and the first block have nothing to hide behind; then every gather is hidden.
    assert [task.start_s for task in forward] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    # The last block was resharded, so that backward waits for its gather once.
    assert [task.start_s for task in backward] == pytest.approx([5.5, 6.5, 7.5, 8.5])
    # The last block's sum and the root's are what is exposed in the end.
    assert max(task.end_s for task in tasks) == pytest.approx(9.5 + 0.5 + 0.5)


def test_no_more_than_one_block_is_gathered_ahead() -> None:
    tasks = toy(gather_s=0.1, sum_s=0.0)
    gathers = [task for task in tasks if task.name.startswith("gather h.")]
    copied = [task.end_s for task in tasks if task.name.startswith("copy out")]
    # Forward: root, h.0, h.1, ...; the gather of a block waits until the one two before it was copied out.
    for gather, two_before_s in zip(gathers[1:4], copied, strict=False):
        assert gather.start_s >= two_before_s - 1e-9
    computing = [task for task in tasks if task.stage == "backward" and task.work_s]
    for gather, task in zip(gathers[5:], computing, strict=False):
        assert gather.start_s == pytest.approx(task.start_s)


def test_a_message_waits_for_the_one_before_it() -> None:
    tasks = toy(sum_s=5.0)
    copies = [task for task in tasks if task.name.startswith("copy in")]
    sums = [task for task in tasks if task.name.startswith("sum")]
    for copy, before in zip(copies[1:], sums, strict=False):
        assert copy.start_s >= before.end_s - 1e-9


def test_on_hosts_exchanges_hold_up_the_training_thread() -> None:
    tasks = toy(holds_up=True)
    computing = [task for task in tasks if task.resource == "device" and task.work_s]
    exchanges = [task for task in tasks if task.stage == "exchange"]
    for one in exchanges:
        assert all(task.end_s <= one.start_s + 1e-9 or task.start_s >= one.end_s - 1e-9 for task in computing)
    assert max(task.end_s for task in tasks) == pytest.approx(sum(t.work_s for t in tasks))


# ---- steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        "scheme=ddp sharding=fsdp",
        f"{FOUR_BITS} sharding=fsdp",
        "scheme=ddp sharding=hsdp",
        "scheme=topk density=0.01 sharding=hsdp",
    ],
)
def test_more_bandwidth_is_never_slower(how: str) -> None:
    (case,) = cases(f"{GPT} cluster.link=eth_25_tcp {how}")
    target, step = simulate_case(case)
    half_s, twice_s = sensitivity(case, target)
    assert half_s >= step.iteration_s >= twice_s
    assert half_s > twice_s


def test_more_shards_take_less_memory() -> None:
    words = f"{GPT} scheme=ddp sharding=hsdp shards="
    found = [(case, *simulate_case(case)) for n in (2, 4, 8, 16) for case in cases(f"{words}{n}")]
    needed = [memory_of(*one) for one in found]
    assert all(one is not None and one.sharded for one in needed)
    for less, more in zip(needed[1:], needed, strict=False):
        assert less.optimizer_state < more.optimizer_state
        assert less.total < more.total
    sums = [sum(t.work_s for t in step.tasks if t.stage == "step") for _, _, step in found]
    assert sums == sorted(sums, reverse=True)


def test_gathers_inside_a_node_do_not_depend_on_the_network_between_nodes() -> None:
    slow, fast = (
        steps(f"{GPT} scheme=ddp sharding=hsdp cluster.link={link}")[0] for link in ("eth_1_tcp", "ib_rdma_400")
    )
    gathers = [[t.work_s for t in step.tasks if t.name.startswith("gather")] for step in (slow, fast)]
    assert gathers[0] == gathers[1]
    assert slow.iteration_s > fast.iteration_s


def test_what_replicas_exchange_runs_beside_what_shards_do() -> None:
    (step,) = steps(f"{GPT} scheme=ddp sharding=hsdp cluster.link=eth_25_tcp")
    between = [t for t in step.tasks if t.resource == "replicas"]
    inside = [t for t in step.tasks if t.resource == "network"]
    assert any(a.start_s < b.end_s and b.start_s < a.end_s for a in between for b in inside if b.work_s)
    tracks = {e["args"]["name"] for e in json.loads(chrome_trace({"x": step}))["traceEvents"] if e["ph"] == "M"}
    assert "network of replicas" in tracks


def test_parts_of_a_step_sum_to_it() -> None:
    for step in steps(f"{GPT} scheme=ddp,ddp_fp16 sharding=fsdp,hsdp"):
        assert sum(step.critical_s().values()) == pytest.approx(step.iteration_s)
        assert step.metrics(1)["sent_bytes"] == step.volumes.sent


def test_every_pass_of_an_accumulation_gathers_and_reduces() -> None:
    one, four = (steps(f"{GPT} scheme=ddp sharding=fsdp accumulate={n}")[0] for n in (1, 4))
    assert four.volumes.sent == 4 * one.volumes.sent
    assert 3.5 * one.iteration_s < four.iteration_s < 4 * one.iteration_s


@pytest.mark.parametrize("scheme", ["ddp", "topk"])
def test_replicas_exchange_once_a_step_what_shards_summed_in_all_passes(scheme: str) -> None:
    one, four = (steps(f"{GPT} scheme={scheme} sharding=hsdp accumulate={n}")[0] for n in (1, 4))

    def number(step: ShardedStep, resource: str) -> int:
        return sum(task.resource == resource for task in step.tasks)

    assert number(four, "replicas") == number(one, "replicas") > 0
    assert number(four, "network") == 4 * number(one, "network")
    between = 4 * one.volumes.sent - four.volumes.sent
    assert between == 3 * (one.volumes.sent - volumes_of(replace(one.sharded, replicas=None)).sent)


def test_bf16_sums_send_half_and_blocks_that_stay_whole_are_gathered_once() -> None:
    whole, half = (steps(f"{GPT} scheme=ddp sharding=fsdp reduce_dtype={kind}")[0] for kind in ("fp32", "bf16"))
    sums = [
        sum(shard_traffic(one.sharded.shards, lane).sent_bytes for _, lane in one.sharded.shards.lanes())
        for one in (whole, half)
    ]
    assert sums[0] == 2 * sums[1]
    (kept,) = steps(f"{GPT} scheme=ddp sharding=fsdp reshard_after_forward=false")
    gathers = [sum(t.name.startswith("gather") for t in step.tasks) for step in (whole, kept)]
    assert gathers[0] == 2 * gathers[1] - 1


def test_rows_that_ranks_send_are_padded_to_four_bytes() -> None:
    profile = Profile("odd", (TensorSpec("h.0.w", (13,)),), (1.0,), 1.0, Origin("nominal"))
    given = {"compressor": "qsgd(bits=4,bucket=32,norm=max)"}
    found = plan_sharded(profile, Sharding("fsdp", 2), Asked("fused_all", given), Asked())
    (lane,) = [lane for _, lane in found.shards.lanes()]
    assert row_bytes(found.shards, lane) % 4 == 0
    assert shard_traffic(found.shards, lane).sent_bytes == row_bytes(found.shards, lane)


# ---- memory ---------------------------------------------------------------------------------------------------------

LLAMA = "model=llama3_8b cluster=aws_p5 precision=bf16"


def test_what_does_not_fit_whole_fits_in_shards() -> None:
    whole, shared, between = (
        memory_of(case, *simulate_case(case))
        for words in ("scheme=ddp", "scheme=ddp sharding=fsdp", "scheme=ddp sharding=hsdp")
        for case in cases(f"{LLAMA} {words}")
    )
    assert not whole.fits
    assert "sharding=fsdp" in whole.text
    assert shared.fits
    assert between.fits
    assert shared.total < between.total


def test_a_residual_between_shards_is_of_the_whole_model_and_only_where_asked_for() -> None:
    kept = {}
    for memory in ("", "memory=none", "memory=residual"):
        (case,) = cases(f"{LLAMA} scheme=fused_all compressor=onebit sharding=fsdp {memory}")
        kept[memory] = memory_of(case, *simulate_case(case)).residuals
    assert kept[""] == kept["memory=none"] == 0
    assert kept["memory=residual"] >= 8 * 8_030_261_248


# ---- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("shards=4", "shards=4 shares nothing with sharding=none; use sharding=hsdp shards=4"),
        ("reduce_dtype=bf16", "reduce_dtype=bf16 is of sharded models, and sharding=none has none"),
        ("reshard_after_forward=false", "reshard_after_forward=false is of sharded models"),
        ("shard_compressor=onebit", "shard_compressor=onebit sums over shards, and sharding=none has none"),
        ("sharding=fsdp shards=4", "shards=4 is another number; use sharding=hsdp shards=4, or leave shards out"),
        ("sharding=hsdp shards=5", "sharding=hsdp with shards=5 does not fill 16 ranks in nodes of 8"),
        ("sharding=hsdp shards=16", "use shards=8, or sharding=fsdp"),
        ("sharding=fsdp shard_compressor=onebit", "shard_compressor=onebit is for sharding=hsdp"),
        ("sharding=fsdp scheme=auto", "scheme=auto plans by ready times and costs"),
        ("sharding=fsdp scheme=oktopk", "scheme=oktopk adds up selected elements on the way"),
        ("sharding=fsdp scheme=topk", "keeps a residual of the whole model on every rank"),
        ("sharding=fsdp scheme=powersgd", "does not sum over shards"),
        ("sharding=fsdp world_size=1", "world_size=1 is one; use sharding=none"),
        ("memory=residual", "memory has no effect on a simulated step with sharding=none"),
        ("sharding=zero", "unknown sharding 'zero'"),
        ("weights=bf16", "weights=bf16 gathers weights of sharded models, and sharding=none has none"),
        ("sharding=fsdp weights=topk", "weights=topk leaves out weights"),
        ("exempt=[bias]", "exempt='bias' is no kind of parameter; use vectors, embeddings, norms"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, says: str) -> None:
    base = "" if "scheme=" in words else " scheme=ddp"
    with pytest.raises(ConfigError) as error:
        [simulate_case(case) for case in cases(f"model=resnet50 cluster=aws_p5{base} {words}")]
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_single_node_has_no_replicas_of_its_shards_by_default() -> None:
    with pytest.raises(ConfigError, match=r"one shard on each of the 8 devices of a node.*use shards=4"):
        cases(
            "model=resnet50 cluster=snellius_h100 cluster.nodes=1 cluster.devices_per_node=8 scheme=ddp sharding=hsdp"
        )


def test_both_sums_may_be_compressed() -> None:
    words = f"{GPT} sharding=hsdp scheme=topk density=0.01"
    plain, both = steps(words)[0], steps(f"{words} shard_compressor=qsgd(bits=8,norm=max)")[0]
    assert both.volumes.sent < plain.volumes.sent
    assert {lane.collective for _, lane in both.sharded.shards.lanes()} == {"all_to_all"}
    assert {lane.collective for _, lane in plain.sharded.shards.lanes()} == {"reduce_scatter"}
    assert both.plan == plain.plan


def test_weights_in_fewer_bits_are_gathered_in_fewer_bytes_and_take_compressors_time() -> None:
    words, eight = f"{GPT} scheme=ddp sharding=fsdp", "qsgd(bits=8,norm=max,nearest=True)"
    plain, half = steps(words)[0], steps(f"{words} weights=bf16")[0]
    (low,) = steps(f"{words} weights={eight}")
    assert gathered_bytes(half.sharded) == gathered_bytes(plain.sharded)  # they are bf16 as it is
    for few, all_of_them in zip(gathered_bytes(low.sharded), gathered_bytes(plain.sharded), strict=True):
        assert few < 0.52 * all_of_them
    assert low.volumes.sent < plain.volumes.sent
    streams = {task.stage for task in low.tasks if task.resource == "gather_stream"}
    assert streams == {"compress", "decompress"}
    assert not [task for task in plain.tasks if task.resource == "gather_stream"]
    (case,) = cases(f"{LLAMA} scheme=ddp sharding=fsdp weights={eight}")
    (other,) = cases(f"{LLAMA} scheme=ddp sharding=fsdp")
    more = memory_of(case, *simulate_case(case)).messages - memory_of(other, *simulate_case(other)).messages
    assert 0 < more < 2**31  # the root, with a table of a billion elements, is the largest group


def test_exempt_kinds_are_dense_whether_a_model_is_shared_or_not() -> None:
    for words in ("scheme=fused_all compressor=qsgd sharding=fsdp", "scheme=per_tensor density=0.01"):
        kept, all_sent = (
            simulate_case(cases(f"{GPT} {words}{more}")[0])[1] for more in (" exempt=[vectors,embeddings]", "")
        )
        dense = {name for _, lane in kept.plan.lanes() for s in lane.segments if s.dense for name in s.tensors}
        by_name = {spec.name: spec for spec in kept.plan.tensors}
        vectors = {name for name in by_name if name.endswith(("bias", "norm.weight", "ln_f.weight"))}
        assert any("wte" in name for name in dense)
        assert vectors <= dense
        assert all(len(by_name[name].shape) == 1 or "wte" in name or "wpe" in name for name in dense)
        assert not [s for _, lane in all_sent.plan.lanes() for s in lane.segments if s.dense]


def test_a_plan_is_that_of_the_step() -> None:
    words = f"{GPT} sharding=hsdp scheme=topk density=0.01"
    planned = resolve_plan(words.split())
    assert planned.sharding == Sharding("hsdp", 8, 4, "bfloat16")
    profile = simulate_case(cases(words)[0])[0].profile
    found = plan_sharded(profile, planned.sharding, Asked("topk", planned.parts.plan_options), Asked())
    assert found.plan == steps(words)[0].plan


# ---- what is not sharded --------------------------------------------------------------------------------------------


def test_models_that_are_not_sharded_keep_their_ids_and_times() -> None:
    words = "model=bert_large cluster=64gpu scheme=ddp,topk,powersgd,ssfusion_oi density=0.01"
    plain, said = cases(words), cases(f"{words} sharding=none")
    assert [case.run_id for case in plain] == [case.run_id for case in said]
    old = ("sharding", "shards", "reduce_dtype", "reshard_after_forward", "shard_compressor", "weights", "exempt")
    for case in plain:
        assert all(getattr(case, name) == LATER_FIELDS[name] for name in old)  # so that no id holds them
        assert not isinstance(simulate_case(case)[1], ShardedStep)
    sharded = cases("model=bert_large cluster=64gpu scheme=ddp sharding=fsdp")[0]
    assert sharded.run_id != plain[0].run_id
    assert replace(sharded, sharding="none", shards=0).run_id == plain[0].run_id
