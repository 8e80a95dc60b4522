"""Set-ups of experiment=edition2026: what counts, what never may, and what the committed rows say."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import inf, isinf
from pathlib import Path

import pytest

from experiments.common.evaluation.set_ups import (
    CheckedMethod,
    CheckedPlace,
    corrected,
    counted,
    fits,
    map_text,
    needed_gbps,
    on_the_map,
    places,
    together,
)
from ssfx.advice.cases import simulate_case
from ssfx.advice.map_2026 import FILE, place_on_map
from ssfx.advice.sending import more_steps, ways
from ssfx.config.simulations import resolve_simulations
from ssfx.core.case import ClusterChoice
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.lab.results.sent_methods import methods_of, plan_of
from ssfx.lab.results.store import Store
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.schemes.search.recorded_network import Network

LOW_RANK = ("low-rank sums",)


def place(gbps: float, dense_s: float, *methods: CheckedMethod, model: str = "vit_huge") -> CheckedPlace:
    return CheckedPlace(model, "h100", "bf16", "box", "GPUs over TCP", gbps, 64, True, 0.1, dense_s, methods)


def method(iteration_s: float, more: float | None = 0.0, error: float | None = 0.1) -> CheckedMethod:
    return CheckedMethod(
        "powersgd", iteration_s, LOW_RANK, more, error, "low rank: 3 runs of 2 networks, 1 of them of x", 3
    )


@pytest.fixture(scope="module")
def committed() -> list[Row]:
    return Store(Path("results"), reference_dir()).reference_rows("edition2026")


@pytest.fixture(scope="module")
def found(committed: list[Row]) -> list[CheckedPlace]:
    return places(committed)[0]


def test_a_win_is_beyond_the_error_and_in_time_to_quality():
    """1.0 s beats 1.3 s by more than 10 % of both; not with 20 % more steps, nor with a quality that nobody knows."""
    cases = {1.0: method(1.0), 1.2: method(1.0, 0.2), inf: method(1.0, None)}
    assert {seconds: one.to_quality_s for seconds, one in cases.items()} == {one: one for one in cases}
    assert [bool(place(1, 1.3, one).wins) for one in cases.values()] == [True, False, False]
    assert not place(1, 1.3, method(1.0, error=None)).wins  # such steps were never scored
    assert not place(1, 1.3, replace(method(1.0), sends=("16-bit sums",))).wins  # which is dense training
    assert not place(1, 1.3, replace(method(1.0), runs=1)).wins  # which may be luck
    assert place(1, 1.3, *cases.values()).gain == pytest.approx(0.3)
    assert place(1, 0.9, method(1.0)).gain == 0


def test_what_compression_affords_asks_for_no_quality():
    """A step of 1.0 s in place of 1.3 s may need 1.3 times the steps; surely so if the error is below the gain."""
    unknown = method(1.0, None)
    assert place(1, 1.3, unknown, method(1.2)).affords == pytest.approx(1.3)
    assert place(1, 0.9, unknown).affords == place(1, 2.0, replace(unknown, sends=("16-bit sums",))).affords == 1
    shorter = {error: place(1, 1.3, method(1.0, None, error)).surely_shorter for error in (0.1, 0.2, None)}
    assert shorter == {0.1: True, 0.2: False, None: False}


def test_set_ups_are_counted_by_hand():
    every = [place(1, 2.0, method(1.0), method(1.5, None)), place(10, 1.05, method(1.0)), place(100, 1.0, method(1.0))]
    whole = counted(every)
    assert (whole.set_ups, whole.faster, whole.known, whole.sure) == (4, 3, 2, 1)
    assert whole.most_gbps == 1
    assert "In 1 of 4 simulated configurations that fit, compression surely shortens the time" in whole.sentence
    assert "at most 1 Gbit/s per GPU" in whole.sentence
    assert "the time to quality is shorter, by runs of low rank (3 runs of 2 networks). For" in whole.sentence
    assert "For the other 1 the quality is unknown" in whole.sentence
    none = counted(every[2:]).sentence
    assert "In 0 of 1 simulated" in none
    assert "For all of those the quality is unknown" in none


def test_known_biases_correct_both_sides():
    low, dense = 0.25, -0.5
    (one,) = corrected([place(1, 1.0, method(1.0))], lambda sends, _: low if tuple(sends) == LOW_RANK else dense)
    assert (one.dense_s, one.methods[0].iteration_s, one.methods[0].error) == (2.0, 0.8, 0.0)


def test_the_bandwidth_that_a_model_needs_lies_between_two_that_were_simulated():
    every = [place(1, 0.4), place(10, 0.2), place(100, 0.125)]  # 25, 50 and 80 % of the time computing
    assert needed_gbps(every, 0.5, compressed=False) == pytest.approx(10)
    assert needed_gbps(every, 0.65, compressed=False) == pytest.approx(10**1.5)
    assert needed_gbps(every, 0.2, compressed=False) == 1
    assert isinf(needed_gbps(every, 0.9, compressed=False))
    fast = [replace(one, methods=(method(0.125),)) for one in every]
    assert needed_gbps(fast, 0.8, compressed=True) == pytest.approx(1)


def test_methods_of_a_plan_tell_its_quality_and_its_way_of_sending():
    words = ("model=bert_large", "cluster=64gpu", "scheme=auto,powersgd,ssfusion_oi,ddp_fp16")
    for case in resolve_simulations(words):
        target, step = simulate_case(case)
        again, network = plan_of(methods_of(step.plan)), Network.of(target.profile)
        assert ways(again) == ways(step.plan)
        assert more_steps(again, network) == more_steps(step.plan, network)


def test_classes_of_records_are_named_once() -> None:
    records = ["b: 9 runs of 2 networks, 3 of them of x", "a: 5 runs of 3 networks, 1 of them of y"]
    said = "a (5 runs of 3 networks) and b (9 runs of 2 networks)"
    assert (together([*records, records[0], "in 16 bits, unrecorded"]), together([])) == (said, "")


def test_nothing_that_does_not_fit_is_counted(committed: list[Row], found: list[CheckedPlace]):
    every = committed
    small = [replace(row, manifest={**row.manifest, "device_memory_bytes": 10**9}) for row in every[:300]]
    assert places(small)[0] == []
    assert places(small)[1] > 0
    able = {row.case.model for row in every if fits(row)}
    assert {one.model for one in found} <= able
    counted_methods = sum(len(one.methods) for one in found)
    assert counted_methods <= sum(fits(row) for row in every if row.case.scheme not in ("ddp", "ddp_fp16"))
    too_large = [row for row in every if not fits(row)]
    assert too_large
    least = {(row.case.model, row.case.scheme, str(row.case.cluster)) for row in too_large}
    kept = {(one.model, how.scheme, one.cluster) for one in found for how in one.methods}
    assert len(least - kept) > 0
    assert counted(found).set_ups == counted_methods >= 3000


def test_more_bandwidth_never_raises_a_gain(found: list[CheckedPlace]):
    """What surely pays at a rate surely pays at all lower ones, where the plan there sends by kinds that are as sure.

    No gain rises by more than what plans are off, where as many methods have a quality that somebody recorded: `auto`
    may send by a kind there that it does not send by at a higher rate.
    """

    def known(one: CheckedMethod) -> bool:
        return one.more_steps is not None

    series: dict[tuple[object, ...], list[CheckedPlace]] = {}
    for one in on_the_map(found):
        key = (one.model, one.device, one.precision, one.network, "nics_per_node=8" in one.cluster)
        series.setdefault(key, []).append(one)
    assert all(len(one) == 3 for one in series.values())
    for same in series.values():
        ascending = sorted(same, key=lambda one: one.gbps)
        for low, high in combinations(ascending, 2):
            errors = {one.scheme: one.error for one in low.methods if one.error is not None}
            sure = {
                one.scheme for one in high.wins if one.error is not None and errors.get(one.scheme, inf) <= one.error
            }
            assert sure <= {one.scheme for one in low.wins}
        for low, high in pairwise(ascending):
            if {one.scheme for one in high.methods if known(one)} <= {one.scheme for one in low.methods if known(one)}:
                assert high.gain <= low.gain + 0.03, (low, high)


def test_more_bandwidth_never_raises_the_gain_of_low_rank_over_dense():
    gains = []
    for link in ("eth_1_tcp", "eth_10_tcp", "eth_25_tcp", "ib_rdma_100", "ib_rdma_400"):
        words = ("model=vit_huge", "precision=bf16", "cluster=box", f"cluster.link={link}", "cluster.nics_per_node=1")
        dense, low = resolve_simulations([*words, "scheme=ddp_fp16,powersgd"])
        gains.append(simulate_case(dense)[1].iteration_s / simulate_case(low)[1].iteration_s)
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 5 > 1 > gains[-1]


def test_the_map_in_the_package_is_what_the_rows_give(committed: list[Row]):
    assert read(data_dir() / FILE, loads) == loads(map_text(committed))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("64gpu", {}, "of 8 other models at 50 Gbit/s per GPU, compression surely pays for 0; in the median"),
        ("64gpu", {"inter.gbps": 50}, "at 12.5 Gbit/s per GPU"),
        ("acpsgd_10gbe", {"device": "h100"}, "at 3.12 Gbit/s per GPU"),
        ("local", {"device": "cpu"}, ""),
    ],
)
def test_a_cluster_has_its_place_on_the_map(name: str, options: dict[str, object], said: str):
    sentence = place_on_map(cluster_on(ClusterChoice(name, options), None, "auto"))
    assert said in sentence
    assert bool(said) == bool(sentence)
