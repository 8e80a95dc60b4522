"""Plans of s2reducer, omnireduce and parallax: lanes, options that reach the collective, what is dense or refused."""

import pytest
from plan.instances import ORIGIN, affine_costs, instance_a, make_profile

from ssfx.collectives import collectives
from ssfx.core.errors import ConfigError
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.planning.plan import Plan, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.pricing.message_sizes import lane_load, plan_bytes
from ssfx.simulator.pricing.timeline import evaluate


def groups(plan: Plan) -> list[tuple[str, ...]]:
    return [lane.tensors for _, lane in plan.lanes()]


def seconds(scheme: str, profile: Profile, options: dict[str, object]) -> float:
    costs = affine_costs()
    return evaluate(make_plan(scheme, profile, costs, options), profile, costs).total_s


def test_s2reducer_sketches_the_whole_model() -> None:
    profile, costs = instance_a(), affine_costs()
    plan = make_plan("s2reducer", profile, costs, {})
    ((_, lane),) = plan.lanes()
    assert lane.collective == "s2_sketch"
    assert [(s.compressor, s.density) for s in lane.segments] == [("block_topk", 1 / 32)]


def test_s2reducer_hands_its_options_to_the_sketch() -> None:
    options = {"compressor": "block_topk(block=16)", "ratio": 0.25, "density": 0.01}
    plan = make_plan("s2reducer", instance_a(), affine_costs(), options)
    ((_, lane),) = plan.lanes()
    assert lane.collective == "s2_sketch(block=16,ratio=0.25)"
    load = lane_load(plan, lane)
    blocks = -(-sum(instance_a().numel) // 16)
    assert load.kept == 16 * (blocks // 100)
    sizes = [phase.size for phase in collectives.build(lane.collective).phases(load)]
    assert sizes == [4 * int(0.25 * load.kept), blocks]


def test_s2reducer_is_dense_where_sketch_and_bitmap_are_no_smaller() -> None:
    plan = make_plan("s2reducer", instance_a(), affine_costs(), {"ratio": 32.0})
    assert plan_bytes(plan) == instance_a().nbytes
    assert plan.notes
    single = make_plan("s2reducer", instance_a(), affine_costs(), {"compressor": "block_topk(block=1)"})
    assert single.launch_order  # one bit of bitmap is a byte: a quarter of the gradient, but less than all of it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compressor": "topk"}, "it takes block_topk only"),
        ({"compressor": "block_topk(agreed=True)"}, "ranks that agree on blocks need no sketch"),
        ({"compressor": "block_topk(value_dtype=float16)"}, "sends float32 values"),
        ({"ratio": 0.0}, "ratio must be positive, got 0"),
    ],
)
def test_s2reducer_refuses_what_cannot_work(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_plan("s2reducer", instance_a(), affine_costs(), options)


def test_omnireduce_has_ddps_buckets() -> None:
    profile, costs = instance_a(), affine_costs()
    plan = make_plan("omnireduce", profile, costs, {})
    assert groups(plan) == groups(make_plan("ddp", profile, costs, {}))
    assert {lane.collective for _, lane in plan.lanes()} == {"block_all_reduce"}
    assert plan_bytes(plan) == profile.nbytes
    halved = make_plan("omnireduce", profile, costs, {"compressor": "fp16"})
    assert 2 * plan_bytes(halved) == profile.nbytes
    alone = make_plan("omnireduce", profile, affine_costs(1), {})
    assert {lane.collective for _, lane in alone.lanes()} == {"all_reduce"}


def test_omnireduce_is_predicted_slower_than_ddp_unless_blocks_are_expected_to_be_empty() -> None:
    profile = instance_a()
    assert seconds("omnireduce", profile, {"filled": 0.2}) < seconds("ddp", profile, {})
    assert seconds("ddp", profile, {}) < seconds("omnireduce", profile, {})


def language_model() -> Profile:
    shapes = {"head.bias": (60_000,), "head.weight": (60_000, 64), "encoder.norm": (64,), "empty.emb": (0, 64)}
    shapes |= {"pos_embed": (128, 64), "encoder.weight": (60_000, 64), "emb.bias": (64,)}
    tensors = tuple(TensorSpec(name, shape) for name, shape in shapes.items())
    return Profile("lm", tensors, (1e-3,) * len(tensors), 0.0, ORIGIN)


def test_parallax_gives_each_table_a_lane_of_rows() -> None:
    plan = make_plan("parallax", language_model(), affine_costs(), {})
    lanes = {lane.tensors: lane.collective for _, lane in plan.lanes()}
    assert lanes.pop(("encoder.weight",)) == lanes.pop(("pos_embed",)) == "row_sparse(width=64)"
    assert set(lanes.values()) == {"all_reduce"}
    assert sorted(name for names in lanes for name in names) == sorted(
        {"head.bias", "head.weight", "encoder.norm", "empty.emb", "emb.bias"}
    )
    assert plan_bytes(plan) == language_model().nbytes
    assert not plan.notes


@pytest.mark.parametrize(
    ("model", "tables"),
    [
        ("lstm_tiny", ["embedding.weight"]),
        ("gpt2_tiny", ["transformer.wpe.weight", "transformer.wte.weight"]),
        ("lstm_wikitext2", ["embedding.weight"]),
    ],
)
def test_parallax_knows_the_tables_of_usual_models(model: str, tables: list[str]) -> None:
    plan = make_plan("parallax", load_shipped(model), affine_costs(), {})
    by_rows = [lane.tensors for _, lane in plan.lanes() if lane.collective.startswith("row_sparse")]
    assert sorted(name for names in by_rows for name in names) == tables


def test_parallax_says_when_there_is_no_table() -> None:
    costs = affine_costs()
    for profile, options in ((load_shipped("resnet_tiny"), {}), (language_model(), {"tables": "nothing|*.norm"})):
        plan = make_plan("parallax", profile, costs, options)
        assert groups(plan) == groups(make_plan("ddp", profile, costs, {}))
        assert "so all tensors are dense" in dict(plan.notes)["tables"]


def test_parallax_options_reach_the_lanes() -> None:
    options = {"tables": "*head.weight", "touched": 0.5, "compressor": "fp16"}
    plan = make_plan("parallax", language_model(), affine_costs(), options)
    lanes = {lane.tensors: lane for _, lane in plan.lanes()}
    assert lanes.pop(("head.weight",)).collective == "row_sparse(touched=0.5,width=64)"
    assert {s.compressor for lane in lanes.values() for s in lane.segments} == {"fp16"}
    assert seconds("parallax", language_model(), {"touched": 0.01}) < seconds("parallax", language_model(), {})


def test_parallax_refuses_what_would_have_no_effect_or_no_meaning() -> None:
    tensors = (TensorSpec("emb.weight", (100, 8)),)
    only = Profile("table", tensors, (1e-3,), 0.0, ORIGIN)
    with pytest.raises(ConfigError, match="every tensor is one of the tables"):
        make_plan("parallax", only, affine_costs(), {"compressor": "fp16"})
    with pytest.raises(ConfigError, match=r"touched must be in \(0, 1\], got 2"):
        make_plan("parallax", only, affine_costs(), {"touched": 2.0})


@pytest.mark.parametrize("scheme", ["omnireduce", "parallax"])
def test_lossless_schemes_refuse_a_density(scheme: str) -> None:
    with pytest.raises(ConfigError, match="sends every gradient dense"):
        make_plan(scheme, make_profile([10], [0.0]), affine_costs(), {"density": 0.1})
