"""MergeComp's measured search: how many probes it takes, what it returns, and that times are its only state."""

import random
from collections.abc import Callable

import pytest
from plan.instances import affine_costs, instance_a

from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.measured_search import MIN_GAIN, MeasuredSearch, most_probes, probe_options


def run(search: MeasuredSearch, seconds: Callable[[int], float]) -> list[int]:
    """Answer every probe; return the cuts that were tried."""
    tried = []
    while not search.finished:
        tried.append(search.cut)
        search.add(seconds(search.cut))
    return tried


@pytest.mark.parametrize("num_tensors", [5, 12, 62, 161, 436, 5000])
def test_a_steep_valley_is_found_in_a_logarithmic_number_of_probes(num_tensors: int) -> None:
    rng = random.Random(num_tensors)
    for lowest in [2, num_tensors - 2, *(rng.randint(2, num_tensors - 2) for _ in range(60))]:
        search = MeasuredSearch(num_tensors, warmup=5)
        tried = run(search, lambda cut, lowest=lowest: 1.0 + 0.02 * abs(cut - lowest))
        assert search.cut == lowest
        assert tried[:5] == [num_tensors // 2] * 5
        assert len(tried) <= 5 + 2 * (2 * num_tensors.bit_length() + 4)


def test_a_shallow_valley_is_found_up_to_the_noise_that_is_allowed_for() -> None:
    for lowest in range(2, 299):
        search = MeasuredSearch(300, warmup=0)
        run(search, lambda cut, lowest=lowest: 1.0 + 1e-5 * (cut - lowest) ** 2)
        assert 1.0 + 1e-5 * (search.cut - lowest) ** 2 <= 1.0 + MIN_GAIN


def test_the_stride_of_the_public_code() -> None:
    tried = run(MeasuredSearch(100, warmup=0), lambda cut: 1.0 + 0.02 * abs(cut - 50))
    assert tried[:2] == [50, 52]
    tried = run(MeasuredSearch(100, step=5, warmup=0), lambda cut: 1.0 + 0.02 * abs(cut - 50))
    assert tried[:2] == [50, 55]


def test_distant_times_are_measured_once_and_close_ones_twice() -> None:
    tried = run(MeasuredSearch(100, warmup=0), lambda cut: 2.0 ** abs(cut - 37.2))
    assert max(tried.count(cut) for cut in tried) == 1
    tried = run(MeasuredSearch(100, warmup=0), lambda cut: 1.0)
    assert {tried.count(cut) for cut in tried} == {2}


def test_noise_below_the_gain_that_is_asked_for_moves_nothing_far() -> None:
    rng = random.Random(0)
    for _ in range(50):
        search = MeasuredSearch(161, warmup=0)
        run(search, lambda cut: (1.0 + 0.02 * abs(cut - 60)) * rng.uniform(0.998, 1.002))
        assert abs(search.cut - 60) <= 1


def test_the_first_and_last_cut_are_never_the_answer() -> None:
    for slope in (1.0, -1.0):
        search = MeasuredSearch(100, warmup=0)
        run(search, lambda cut, slope=slope: 120.0 + slope * cut)
        assert search.cut == (2 if slope > 0 else 98)
    for num_tensors in (2, 3):
        for warmup in (0, 1):
            search = MeasuredSearch(num_tensors, warmup=warmup)
            assert len(run(search, lambda cut: 1.0)) == warmup
            assert search.cut == 1


def test_no_times_make_it_longer_than_it_may_be() -> None:
    rng = random.Random(1)
    for _ in range(500):
        num_tensors, step, spread = rng.randint(2, 600), rng.randint(1, 8), rng.choice([0.0, 0.005, 0.02, 0.5])
        search = MeasuredSearch(num_tensors, step=step, warmup=2)
        tried = run(search, lambda cut, spread=spread: rng.uniform(1 - spread, 1 + spread))
        assert len(tried) <= most_probes(num_tensors, step=step, warmup=2)
        assert all(0 < cut < num_tensors for cut in [*tried, search.cut])


def test_the_times_of_its_probes_are_its_whole_state() -> None:
    def seconds(cut: int) -> float:
        return 1.0 + 0.003 * abs(cut - 40)

    whole = MeasuredSearch(161)
    tried = run(whole, seconds)
    for stop in range(len(tried) + 1):
        again = MeasuredSearch(161, probe_times_s=whole.probe_times_s[:stop])
        assert again.cut == [*tried, whole.cut][stop]
        run(again, seconds)
        assert (again.cut, again.probe_times_s) == (whole.cut, whole.probe_times_s)
    with pytest.raises(ValueError, match="the search has ended with cut"):
        whole.add(1.0)
    with pytest.raises(ValueError, match="nothing to cut in a model of 1 tensor"):
        MeasuredSearch(1)


def test_a_probe_is_planned_by_its_cut() -> None:
    given = {"compressor": "topk", "search": "measured", "step": 3, "probe_iters": 10, "probe_warmup": 1}
    options = probe_options(given, 8)
    assert options == {"compressor": "topk", "cuts": "8"}
    plan = make_plan("mergecomp", instance_a(), affine_costs(), options)
    assert [len(bucket.lanes[0].tensors) for bucket in plan.buckets] == [8, 4]
    start = MeasuredSearch(12, warmup=5).cut
    assert (
        make_plan("mergecomp", instance_a(), affine_costs(), given).buckets
        == make_plan("mergecomp", instance_a(), affine_costs(), probe_options(given, start)).buckets
    )
