"""A Plan is what it claims to be: every broken invariant is refused, and text and back is the same plan."""

from dataclasses import replace

import pytest
from plan.instances import affine_costs, instance_a

from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Bucket, Lane, Plan, PlanError, Segment, TensorSpec
from ssfx.schemes.make_plan import MAX_INDEX, check_capabilities, make_plan

T = (TensorSpec("a", (4,)), TensorSpec("b", (2, 3)), TensorSpec("h", (5,), "float16"), TensorSpec("z", (0,)))


def lane(*segments: Segment, collective: str = "all_gather") -> Lane:
    return Lane(collective, segments)


def topk(*tensors: str, **kwargs: object) -> Segment:
    return Segment(tensors, "topk", **{"density": 0.5, **kwargs})  # type: ignore[arg-type]


GOOD = Plan(
    "test",
    2,
    T,
    (Bucket((lane(topk("a"), Segment(("b",))),)), Bucket((lane(Segment(("h",))), lane(Segment(("z",)))))),
    ((0, 0), (1, 0)),
)


def with_first(*lanes: Lane) -> dict[str, object]:
    return {"buckets": (Bucket(lanes), GOOD.buckets[1])}


BAD: dict[str, tuple[dict[str, object], str]] = {
    "world size": ({"world_size": 0}, "world size 0"),
    "decode": ({"decode": "later"}, "decode 'later'"),
    "same name twice": ({"tensors": (*T, T[0])}, "share a name"),
    "unknown dtype": ({"tensors": (*T[:3], TensorSpec("z", (0,), "int8"))}, "unsupported dtype"),
    "no lanes": (with_first(), "no lanes"),
    "no segments": (with_first(lane()), "no segments"),
    "no tensors": (with_first(lane(topk())), "without tensors"),
    "unknown tensor": (with_first(lane(topk("a"), topk("c"))), "unknown tensor 'c'"),
    "tensor twice": (with_first(lane(topk("a", "b")), lane(topk("b"))), "'b' is in two segments"),
    "tensor missing": (with_first(lane(topk("a"))), "'b' is in no segment"),
    "tensors out of order": (with_first(lane(topk("b", "a"))), "tensors of a segment are not in backward order"),
    "segments out of order": (with_first(lane(topk("b"), topk("a"))), "segments are not in backward order"),
    "density zero": (with_first(lane(topk("a", "b", density=0.0))), "density 0.0"),
    "density above one": (with_first(lane(topk("a", "b", density=1.5))), "density 1.5"),
    "dense with density": (with_first(lane(Segment(("a", "b"), density=0.5))), "a dense segment"),
    "dense on host": (with_first(lane(Segment(("a", "b"), placement="host"))), "a dense segment"),
    "placement": (with_first(lane(topk("a", "b", placement="moon"))), "placement 'moon'"),
    "mixed dtypes": (
        {"buckets": (Bucket((lane(Segment(("a", "b", "h", "z"))),)),), "launch_order": ((0, 0),)},
        "mixes dtypes",
    ),
    "lane not launched": ({"launch_order": ((0, 0),)}, "launch_order"),
    "lane launched twice": ({"launch_order": ((0, 0), (1, 0), (1, 0))}, "launch_order"),
    "empty lane launched": ({"launch_order": ((0, 0), (1, 0), (1, 1))}, "launch_order"),
    "unknown lane launched": ({"launch_order": ((0, 0), (7, 0))}, "launch_order"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_invariant_is_refused(case: str) -> None:
    change, text = BAD[case]
    with pytest.raises(PlanError, match=text):
        replace(GOOD, **change)  # type: ignore[arg-type]


def test_text_and_back_is_the_same_plan() -> None:
    plan = make_plan("ssfusion_oi", instance_a(), affine_costs(), {"compressor": "topk"})
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest
    assert len(plan.digest) == 16


def test_the_digest_sees_every_field() -> None:
    changed = [
        replace(GOOD, scheme="other"),
        replace(GOOD, world_size=3),
        replace(GOOD, launch_order=((1, 0), (0, 0))),
        replace(GOOD, overlap=False),
        replace(GOOD, decode="comm_stream"),
        replace(GOOD, notes=(("a", "b"),)),
        replace(GOOD, **with_first(lane(topk("a", density=0.25), Segment(("b",))))),  # type: ignore[arg-type]
    ]
    assert len({plan.digest for plan in [GOOD, *changed]}) == len(changed) + 1


def test_another_format_is_refused() -> None:
    with pytest.raises(PlanError, match="another format"):
        Plan.from_json(GOOD.to_json().replace('"format":1', '"format":0'))


def test_payloads_that_cannot_be_added_are_refused() -> None:
    plan = replace(GOOD, **with_first(lane(topk("a"), topk("b"), collective="all_reduce")))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"all_reduce adds payloads .* scheme=per_tensor"):
        check_capabilities(plan)


@pytest.mark.parametrize("other", [Segment(("b",)), Segment(("b",), "fp16")])
def test_an_all_reduce_of_mixed_payloads_is_refused(other: Segment) -> None:
    first = Segment(("a",), "bf16")
    plan = replace(GOOD, **with_first(lane(first, other, collective="all_reduce")))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot mix"):
        check_capabilities(plan)


def test_more_elements_than_indices_can_address_are_refused() -> None:
    tensors = tuple(TensorSpec(f"t{i}", (2**27,)) for i in range(16))
    plan = Plan("test", 2, tensors, (Bucket((lane(topk(*(t.name for t in tensors))),)),), ((0, 0),))
    with pytest.raises(ConfigError, match=str(MAX_INDEX)):
        check_capabilities(plan)
