"""Plans of powersgd, acpsgd, cltk and signsgd: grouping rules, golden buffers, what is dense, what is refused."""

import random
from itertools import pairwise

import pytest
from collectives import golden
from plan.instances import ORIGIN, affine_costs, instance_a, make_profile, random_costs

from ssfx.compressors import build
from ssfx.compressors.lowrank import LowRankOptions, split
from ssfx.core.errors import ConfigError
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.planning.plan import Plan, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.factor_buffers import buffer_groups, factor_bytes, threshold_bytes
from ssfx.simulator.pricing.message_sizes import lane_bytes, lane_load, plan_bytes

FUSION = golden.CASES["acpsgd_fusion"]
BACKWARD_SHAPES = [tuple(shape) for shape in reversed(FUSION["inputs"]["shapes_forward_order"])]


def of_shapes(shapes: list[tuple[int, ...]]) -> Profile:
    tensors = tuple(TensorSpec(f"t{i}", shape) for i, shape in enumerate(shapes))
    return Profile("test", tensors, (1e-3,) * len(shapes), 0.0, ORIGIN)


def positions(plan: Plan) -> list[list[int]]:
    """Return the backward positions of each lane's tensors."""
    return [[plan.order[name] for name in lane.tensors] for _, lane in plan.lanes()]


@pytest.mark.parametrize("factor", ["P", "Q"])
def test_golden_buffers(factor: str) -> None:
    params, expected = FUSION["params"], FUSION["expected"][factor]
    nbytes = [factor_bytes(shape, LowRankOptions(params["rank"]))["PQ".index(factor)] for shape in BACKWARD_SHAPES]
    assert nbytes == expected["tensor_bytes_backward_order"]
    limit_bytes = threshold_bytes(nbytes, FUSION["expected"]["model_bytes"], params["buffer_bytes"])
    assert limit_bytes == pytest.approx(expected["threshold_bytes"], rel=1e-12)
    groups = buffer_groups(nbytes, limit_bytes)
    assert [list(group) for group in groups] == expected["groups_backward_positions"]
    assert [sum(nbytes[i] for i in group) for group in groups] == expected["group_bytes"]


def test_buffers_hold_all_tensors_and_exceed_the_limit_only_with_one() -> None:
    rng = random.Random(0)
    for _ in range(300):
        nbytes = [rng.choice([0, rng.randint(1, 50), rng.randint(1, 500)]) for _ in range(rng.randint(0, 12))]
        limit = rng.choice([0, 50, 200, 5000])
        groups = buffer_groups(nbytes, limit)
        assert [i for group in groups for i in group] == list(range(len(nbytes)))
        for group in groups:
            held = [nbytes[i] for i in group if nbytes[i]]
            assert sum(held) <= limit or len(held) == 1
        for group, following in pairwise(groups):
            assert sum(nbytes[i] for i in group) + nbytes[following.start] > limit


def test_acpsgd_applies_the_rule_to_the_mean_of_both_factors() -> None:
    plan = make_plan("acpsgd", of_shapes(BACKWARD_SHAPES), affine_costs(), {"buffer_bytes": 65536})
    # means 40 592 256 2816 | 128 1408 64 344 under 65536 * 5648 / 96936 = 3818 bytes
    assert positions(plan) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [lane_load(plan, lane).nbytes for _, lane in plan.lanes()] == [3704, 1944]  # the mean of two steps
    for _, lane in plan.lanes():
        assert lane.collective == "all_reduce"
        assert [segment.compressor for segment in lane.segments] == ["acpsgd"]
        parts = split(tuple(plan.by_name[name].shape for name in lane.tensors), LowRankOptions(4))
        assert lane_bytes(plan, lane) == 4 * (max(parts.left, parts.right) + parts.rest)


def test_acpsgd_without_buffers_sends_every_tensor_alone_and_vectors_dense() -> None:
    plan = make_plan("acpsgd", of_shapes(BACKWARD_SHAPES), affine_costs(), {"buffer_bytes": 0})
    assert positions(plan) == [[i] for i in range(8)]
    dense = [lane.segments[0].dense for _, lane in plan.lanes()]
    assert dense == [len(shape) == 1 for shape in BACKWARD_SHAPES]


def test_acpsgd_has_about_as_many_buffers_as_ddp_has_buckets() -> None:
    profile = load_shipped("bert_base")
    buffers, ddp = (make_plan(scheme, profile, affine_costs(), {}) for scheme in ("acpsgd", "ddp"))
    # DDP's buckets overshoot their cap, compressed buffers stay below it
    assert len(ddp.buckets) <= len(buffers.buckets) <= 2 * len(ddp.buckets)
    assert plan_bytes(buffers) < plan_bytes(ddp) / 20


def test_powersgd_packs_the_model_or_keeps_ddps_buckets() -> None:
    profile, costs = load_shipped("resnet50"), affine_costs()
    packed, wfbp = (make_plan("powersgd", profile, costs, {"variant": v}) for v in ("packed", "wfbp"))
    ddp = make_plan("ddp", profile, costs, {})
    assert len(packed.launch_order) == 1
    assert positions(wfbp) == positions(ddp)
    assert plan_bytes(packed) == plan_bytes(wfbp)  # per-tensor factors: grouping changes messages, not bytes
    parts = split(tuple(spec.shape for spec in profile.tensors), LowRankOptions(4))
    assert plan_bytes(packed) == 4 * (parts.left + parts.right + parts.rest)
    larger = make_plan("powersgd", profile, costs, {"compressor": "powersgd(rank=8)"})
    assert plan_bytes(packed) < plan_bytes(larger) < profile.nbytes


@pytest.mark.parametrize("scheme", ["powersgd", "acpsgd"])
def test_models_without_a_matrix_worth_factoring_are_dense(scheme: str) -> None:
    plan = make_plan(scheme, instance_a(), affine_costs(), {})
    assert all(segment.dense for _, lane in plan.lanes() for segment in lane.segments)
    assert plan_bytes(plan) == instance_a().nbytes


@pytest.mark.parametrize("scheme", ["powersgd", "acpsgd"])
def test_a_density_is_refused_because_the_rank_decides(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"density=0[.]1 would have no effect"):
        make_plan(scheme, load_shipped("resnet_tiny"), affine_costs(), {"density": 0.1})


def test_cltk_is_one_vector_and_needs_no_gather() -> None:
    profile, costs = instance_a(), affine_costs()
    joint = make_plan("cltk", profile, costs, {"density": 0.01})
    assert len(joint.launch_order) == 1
    assert plan_bytes(joint) == 8 * (sum(profile.numel) // 100)  # positions, then values
    assert {lane.collective for _, lane in joint.lanes()} == {"all_reduce"}


def test_cltk_is_dense_where_positions_and_values_are_no_less() -> None:
    plan = make_plan("cltk", instance_a(), affine_costs(), {"density": 0.5})
    assert plan_bytes(plan) == instance_a().nbytes
    assert plan.notes


@pytest.mark.parametrize("world", [2, 8, 128])
def test_signsgd_votes_bucket_by_bucket_at_any_size(world: int) -> None:
    profile = instance_a()
    plan = make_plan("signsgd", profile, affine_costs(world), {})
    assert positions(plan) == positions(make_plan("ddp", profile, affine_costs(world), {}))
    for _, lane in plan.lanes():
        assert lane.collective == "all_gather"
        assert lane_bytes(plan, lane) == 4 + -(-plan.numel(lane) // 8)  # a scale and a bit per element


@pytest.mark.parametrize("scheme", ["powersgd", "acpsgd", "cltk", "signsgd"])
def test_another_compressor_is_refused_with_one_line(scheme: str) -> None:
    with pytest.raises(ConfigError, match=f"scheme={scheme} with compressor=topk: it takes {scheme} only") as caught:
        make_plan(scheme, instance_a(), affine_costs(), {"compressor": "topk"})
    assert "\n" not in str(caught.value)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="buffer_bytes must not be negative, got -1"):
        make_plan("acpsgd", instance_a(), affine_costs(), {"buffer_bytes": -1})
    with pytest.raises(ConfigError, match="option variant of scheme powersgd must be packed or wfbp"):
        make_plan("powersgd", instance_a(), affine_costs(), {"variant": "none"})


@pytest.mark.parametrize("scheme", ["powersgd", "acpsgd"])
def test_matrices_keep_fewer_bytes_than_dense_in_every_message(scheme: str) -> None:
    rng = random.Random(3)
    for _ in range(100):
        shapes = [
            tuple(rng.choice([1, 3, 16, 64, 200]) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 12))
        ]
        profile = of_shapes(shapes)
        plan = make_plan(scheme, profile, random_costs(rng, rng.choice([2, 7, 64])), {})
        for _, lane in plan.lanes():
            assert lane_bytes(plan, lane) <= 4 * plan.numel(lane)
            assert all(segment.dense or build(segment.compressor).name == scheme for segment in lane.segments)


def test_empty_tensors_ride_along() -> None:
    profile = of_shapes([(0,), (200, 200), (0, 4), (3,)])
    for scheme in ("powersgd", "acpsgd", "signsgd", "cltk"):
        plan = make_plan(scheme, profile, affine_costs(2), {})
        assert sorted(i for lane in positions(plan) for i in lane) == [0, 1, 2, 3]


def test_signsgd_alone_is_dense() -> None:
    plan = make_plan("signsgd", make_profile([40, 3], [0, 0]), affine_costs(1), {})
    assert all(segment.dense for _, lane in plan.lanes() for segment in lane.segments)
