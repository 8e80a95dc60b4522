"""Schemes that hand joint vectors to one collective: groups, dense groups where nothing is saved, and refusals."""

from typing import Any

import pytest
from plan.instances import affine_costs, instance_a, make_profile

from ssfx.collectives import Load, collectives
from ssfx.core.errors import ConfigError
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups
from ssfx.simulator.pricing.prices import Prices

TRANSPORTS = {
    "topk": "all_gather",
    "hard_threshold": "all_gather_v",
    "oktopk": "ok_topk",
    "micro": "micro",
    "gtopk": "gtopk",
}
every_scheme = pytest.mark.parametrize("scheme", TRANSPORTS)


def caps() -> list[tuple[str, ...]]:
    tensors = instance_a().tensors
    ranges = cap_groups([spec.nbytes for spec in tensors], FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES)
    return [tuple(spec.name for spec in tensors[at.start : at.stop]) for at in ranges]


@every_scheme
def test_the_model_is_one_vector_in_one_message(scheme: str) -> None:
    plan = make_plan(scheme, instance_a(), affine_costs(4), {"density": 0.01})
    ((_, lane),) = plan.lanes()
    (segment,) = lane.segments
    assert lane.collective == TRANSPORTS[scheme]
    assert segment.tensors == tuple(spec.name for spec in plan.tensors)
    assert segment.density == 0.01
    assert not plan.notes


@every_scheme
@pytest.mark.parametrize(("world", "density"), [(1, 0.01), (4, 1.0)])
def test_one_rank_alone_or_density_one_gives_the_buckets_of_ddp(scheme: str, world: int, density: float) -> None:
    plan = make_plan(scheme, instance_a(), affine_costs(world), {"density": density})
    assert plan.buckets == make_plan("ddp", instance_a(), affine_costs(world)).buckets
    assert not plan.notes


@every_scheme
def test_what_would_send_as_much_as_an_all_reduce_is_dense_and_noted(scheme: str) -> None:
    plan = make_plan(scheme, instance_a(), affine_costs(8), {"density": 0.9})
    assert plan.buckets == make_plan("ddp", instance_a(), affine_costs(8)).buckets
    ((key, text),) = plan.notes
    assert key == "dense"
    assert text.startswith(f"t0 to t11: {TRANSPORTS[scheme]} would send ")


def test_the_note_gives_both_traffics() -> None:
    plan = make_plan("topk", make_profile([1000], [1e-3]), affine_costs(4), {"density": 0.5})
    assert plan.notes == (("dense", "t0: all_gather would send 12000 bytes for 500 elements, an all_reduce 6000"),)


@pytest.mark.parametrize(
    ("scheme", "dense_from"),
    # top-k sends k against n / P, MiCRO 1.5 k against n
    [("topk", 1 / 8), ("micro", 2 / 3)],
)
def test_break_even_lies_where_the_specification_puts_it(scheme: str, dense_from: float) -> None:
    profile, costs = make_profile([1_000_000], [1e-3]), affine_costs(8)
    for density, dense in ((dense_from * 0.99, False), (dense_from * 1.01, True)):
        plan = make_plan(scheme, profile, costs, {"density": density})
        assert bool(plan.notes) == dense


def test_a_variable_gather_is_judged_by_what_is_kept_on_average() -> None:
    # Four times k fit into a message of the hard threshold, k are expected.
    profile = make_profile([1_000_000], [1e-3])
    for density, dense in ((0.1, False), (0.13, True)):
        assert bool(make_plan("hard_threshold", profile, affine_costs(8), {"density": density}).notes) == dense


def test_16_bit_gradients_are_compared_with_their_own_bytes() -> None:
    wide, narrow = (make_profile([1_000_000], [1e-3], [dtype]) for dtype in ("float32", "bfloat16"))
    assert not make_plan("micro", wide, affine_costs(8), {"density": 0.5}).notes
    assert make_plan("micro", narrow, affine_costs(8), {"density": 0.5}).notes


@pytest.mark.parametrize(
    ("scheme", "options", "message"),
    [
        ("topk", {"compressor": "dgc"}, "it takes topk only; drop the compressor, or choose scheme=fused_all"),
        ("hard_threshold", {"compressor": "topk"}, "it takes hard_threshold only"),
        ("oktopk", {"compressor": "topk(value_dtype=float16)"}, "ok_topk sends float32 values; use compressor=topk"),
    ],
)
def test_what_cannot_work_or_would_have_no_effect_is_refused(
    scheme: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(scheme, instance_a(), affine_costs(4), options)


def test_16_bit_values_are_sent_where_the_payload_travels_as_it_is() -> None:
    plan = make_plan("topk", instance_a(), affine_costs(4), {"compressor": "topk(value_dtype=float16)"})
    ((_, lane),) = plan.lanes()
    assert lane.segments[0].compressor == "topk(value_dtype=float16)"


@pytest.mark.parametrize("scheme", ["oktopk", "micro", "gtopk"])
def test_the_predicted_exchange_grows_with_latency_and_size(scheme: str) -> None:
    small, large = Load(10**6, 8 * 10**4, 10**4, 8), Load(10**7, 8 * 10**5, 10**5, 8)
    name = TRANSPORTS[scheme]
    fast, slow = affine_costs(8), affine_costs(8, alpha_s=4e-5)
    on_fast, on_slow = Prices(fast), Prices(slow)
    assert on_fast.load_s(name, "topk", small) < on_fast.load_s(name, "topk", large)
    messages = collectives.build(name).traffic(small).messages
    later_s = on_slow.load_s(name, "topk", small) - on_fast.load_s(name, "topk", small)
    assert later_s == pytest.approx(2e-5 * messages)
