"""Options: what is refused, in one line that names what works, and what each option of the simple schemes does."""

from typing import Any

import pytest
from plan.instances import affine_costs, instance_a, make_profile

from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.pricing.message_sizes import plan_bytes

A, COSTS = instance_a(), affine_costs()
TOPK = {"compressor": "topk"}


def lanes(plan: Plan) -> list[tuple[str, int]]:
    return [(lane.collective, len(lane.segments)) for _, lane in plan.lanes()]


@pytest.mark.parametrize(
    ("scheme", "options", "text"),
    [
        ("ddpp", {}, "did you mean 'ddp'"),
        ("ddp", {"first_bucket": 1}, "did you mean 'first_bucket_bytes'"),
        ("ddp", {"density": 0.01}, "density=0.01 would have no effect; drop it or choose scheme=per_tensor"),
        ("ddp", {"bucket_cap_bytes": 0}, "choose scheme=wfbp"),
        ("ddp", {"bucket_cap_bytes": 2.5}, "must be a whole number, got 2.5"),
        ("ddp", {"compressor": "topk"}, "choose compressor=fp16, or scheme=per_tensor"),
        ("wfbp", {"compressor": "topk"}, "scheme=per_tensor"),
        ("ssgd", {"compressor": "randomk"}, "would leave nothing out"),
        ("ssgd", {"variant": "both"}, "must be fused or per_tensor, got 'both'"),
        ("per_tensor", {"compressor": None}, "scheme=ddp"),
        ("per_tensor", {"compressor": "topp"}, "did you mean 'topk'"),
        ("per_tensor", {"density": 0.0}, r"density must be in \(0, 1\]"),
        ("per_tensor", {"density": True}, "must be a number, got True"),
        ("fused_all", {"fusion_degree": 101}, r"percentage in \[0, 100\]"),
        ("ssfusion_naive", {"compressor": "fp16"}, "choose compressor=topk, or scheme=per_tensor"),
        ("ssfusion_naive", {"compressor": "randomk"}, "choose compressor=topk, or scheme=per_tensor"),
        ("ssfusion_naive", {"profile_iters": 1}, "profile_iters must be at least 2"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(scheme: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make_plan(scheme, A, COSTS, options)
    assert "\n" not in str(caught.value)


def test_equal_options_of_another_type_give_one_digest() -> None:
    one, same = (make_plan("fused_all", A, COSTS, {**TOPK, "fusion_degree": degree}) for degree in (50, 50.0))
    assert one.digest == same.digest


def test_ssgd_does_not_overlap() -> None:
    assert not make_plan("ssgd", A, COSTS).overlap
    assert lanes(make_plan("ssgd", A, COSTS)) == [("all_reduce", 1)]
    assert lanes(make_plan("ssgd", A, COSTS, {"variant": "per_tensor"})) == [("all_reduce", 1)] * 12


@pytest.mark.parametrize("scheme", ["ssgd", "wfbp", "ddp"])
def test_dense_schemes_can_halve_the_bytes(scheme: str) -> None:
    plain, half = (make_plan(scheme, A, COSTS, {"compressor": c}) for c in (None, "fp16"))
    assert lanes(plain) == lanes(half)
    assert 2 * plan_bytes(half) == plan_bytes(plain) == A.nbytes


@pytest.mark.parametrize("scheme", ["per_tensor", "fused_all"])
def test_additive_payloads_travel_in_an_all_reduce(scheme: str) -> None:
    for compressor in ("fp16", "randomk"):
        plan = make_plan(scheme, A, COSTS, {"compressor": compressor})
        assert {collective for collective, _ in lanes(plan)} == {"all_reduce"}
    cast = make_plan(scheme, A, COSTS, {"compressor": "fp16"})
    assert {s.density for _, lane in cast.lanes() for s in lane.segments} == {1.0}


@pytest.mark.parametrize(("degree", "num_calls"), [(0, 12), (1, 12), (20, 10), (50, 7), (100, 1)])
def test_fusion_degree_is_the_share_compressed_jointly(degree: float, num_calls: int) -> None:
    plan = make_plan("fused_all", A, COSTS, {**TOPK, "fusion_degree": degree})
    assert lanes(plan) == [("all_gather", num_calls)]


def test_grouping_of_payloads() -> None:
    numel = [2**18] * 30  # 1 MiB each
    profile = make_profile(numel, [1e-3] * 30)
    sizes = {
        grouping: [n for _, n in lanes(make_plan("per_tensor", profile, COSTS, {**TOPK, "grouping": grouping}))]
        for grouping in ("cap", "scaled_cap", "none")
    }
    assert sizes == {"cap": [1, 25, 4], "scaled_cap": [1, 25, 4], "none": [1] * 30}


def test_density_one_keeps_the_grouping_and_sends_dense() -> None:
    cap = make_plan("per_tensor", A, COSTS, {**TOPK, "density": 1.0})
    assert cap.buckets == make_plan("ddp", A, COSTS).buckets
    none = make_plan("per_tensor", A, COSTS, {**TOPK, "density": 1.0, "grouping": "none"})
    assert none.buckets == make_plan("wfbp", A, COSTS).buckets
    assert make_plan("ssfusion_oi", A, COSTS, {**TOPK, "density": 1.0}).buckets == cap.buckets


def test_only_the_model_driven_schemes_need_a_profile() -> None:
    assert {s.name for s in schemes if s.name.startswith("ssfusion")} == {
        s.name for s in schemes if s.profiled and s.name.startswith("ssfusion")
    }
    assert not any(schemes[name].profiled for name in ("ssgd", "wfbp", "ddp", "per_tensor", "fused_all"))
