"""MiCRO: the golden cases on real processes, disjoint parts that rotate, and a threshold that follows the count."""

import random
import sys
from itertools import pairwise

import pytest
import torch
from collectives import golden, work_reducers
from runtime.ranks import Ranks

from ssfx.collectives import Load, Reduction, Traffic, collectives
from ssfx.collectives.comm import Comm
from ssfx.collectives.micro import Micro, partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.core.spec import NoOptions

CASES = [
    pytest.param(name, marks=pytest.mark.slow if golden.CASES[name]["params"]["P"] > 3 else [])
    for name in golden.of_scheme("micro")
]


class AsPrinted(Micro):
    """MiCRO as the paper prints it: a first threshold that is given, and no rank is limited to its share."""

    def __init__(self, delta0: float) -> None:
        super().__init__(NoOptions())
        self.delta0 = delta0

    def most(self, k: int, world_size: int) -> int:
        return sys.maxsize

    def follow(self, work: Reduction, comm: Comm, part: torch.Tensor) -> Traffic:
        if int(work.state["steps"]) or not work.kept:
            return super().follow(work, comm, part)
        work.state["threshold"] *= self.delta0
        return Traffic(0, 0)


def random_rows(world: int, numel: int, seed: int) -> list[list[float]]:
    """Return quarters without zeros, so that sums are exact in any order."""
    rng = random.Random(seed)
    return [[rng.choice([-1, 1]) * rng.randint(1, 40) / 4 for _ in range(numel)] for _ in range(world)]


@pytest.mark.parametrize("name", CASES)
def test_golden_on_real_processes(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    params, expected = case["params"], case["expected"]["steps"]
    world, starts = params["P"], split_starts(params["n"], params["P"])
    grads = [step["grad"] for step in expected]
    for rank, report in enumerate(
        ranks.run(work_reducers.steps, world, AsPrinted(params["delta0"]), grads, params["k"])
    ):
        for step, wanted in zip(report, expected, strict=True):
            assert [partition_of(r, wanted["t"], world) for r in range(world)] == wanted["partition_of_rank"]
            assert step.indices == wanted["gathered_index_order"]
            for r, part in enumerate(wanted["partition_of_rank"]):
                own = [i for i in step.indices if starts[part] <= i < starts[part + 1]]
                assert own == wanted["selected"][r]
            assert step.total.tolist() == wanted["sum"]
            assert step.residual.tolist() == wanted["residual"][rank]
            assert step.sent == int(step.state["selected"]) == wanted["k_actual"]
            assert float(step.state["threshold"]) == pytest.approx(wanted["threshold"], rel=1e-12)
            longest, ring = max(map(len, wanted["selected"])), _ring_bytes(wanted["k_actual"], world, rank)
            assert step.counted.sent_bytes == (world - 1) * (8 + 4 * longest) + ring
            assert step.counted.messages == 4 * (world - 1)


def _ring_bytes(count: int, world: int, rank: int) -> int:
    chunks = [count // world + (r < count % world) for r in range(world)]
    return 4 * (2 * count - chunks[(rank + 1) % world] - chunks[(rank + 2) % world])


def test_golden_threshold_rule() -> None:
    case = golden.CASES["micro_threshold_rule"]
    threshold = case["params"]["delta0"]
    for row in case["expected"]["trace"]:
        assert threshold_scale(row["k_prev"], case["params"]["k"]) == row["factor"]
        threshold *= row["factor"]
        assert threshold == pytest.approx(row["threshold"], rel=1e-12)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_result_is_the_dense_sum_at_disjoint_indices_and_no_rank_keeps_anything(ranks: Ranks, world: int) -> None:
    grads = [random_rows(world, 50, seed) for seed in range(world + 1)]
    reports = ranks.run(work_reducers.steps, world, "micro", grads, 6)
    acc = torch.zeros(world, 50)
    for step, rows in enumerate(grads):
        acc += torch.tensor(rows)
        at = reports[0][step].indices or []
        assert len(at) == len(set(at))
        dense = torch.zeros(50)
        dense[at] = acc.sum(0)[at]
        for report in reports:
            assert torch.equal(report[step].total, dense)
            assert not report[step].residual[at].any()
        acc = torch.stack([report[step].residual for report in reports])


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_rank_searches_every_part_in_as_many_steps(ranks: Ranks, world: int) -> None:
    # Only the last rank has anything large, so all of it is found when its turn has come for every part.
    numel = 12
    grads = [[[0.0] * numel] * (world - 1) + [[100.0] * numel], *([[[0.0] * numel] * world] * (world - 1))]
    for report in ranks.run(work_reducers.steps, world, AsPrinted(50.0), grads, numel):
        assert {i for step in report for i in step.indices or [] if step.total[i]} == set(range(numel))
        assert not report[-1].residual.any()
        assert [int(step.total.count_nonzero()) for step in report] == [numel // world] * world


def test_a_part_without_anything_large_sends_one_element(ranks: Ranks) -> None:
    grads = [[[0.5] * 7] * 3] * 3
    for report in ranks.run(work_reducers.steps, 3, AsPrinted(100.0), grads, 2):
        # Parts [0, 3), [3, 5), [5, 7); the element rotates with the step, the parts with rank and step.
        wanted = [[0, 3, 5], [4, 6, 1], [5, 2, 3]]
        assert [step.indices for step in report] == wanted
        assert [step.sent for step in report] == [len(at) for at in wanted]


def test_more_ranks_than_elements_leave_parts_empty(ranks: Ranks) -> None:
    for report in ranks.run(work_reducers.steps, 3, "micro", [[[1.0, 2.0]] * 3] * 2, 1):
        assert [sorted(step.indices or []) for step in report] == [[0, 1], [0, 1]]
        assert report[0].total.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("world", [1, 3])
def test_the_first_threshold_is_the_largest_that_sends_what_was_asked_for(ranks: Ranks, world: int) -> None:
    numel, k = 60, 9
    torch.manual_seed(world)
    rows = torch.randn(world, numel)
    starts = split_starts(numel, world)
    parts = [rows[rank, starts[rank] : starts[rank + 1]].abs() for rank in range(world)]
    lowest = min(float(part.sort(descending=True).values[k // world - 1]) for part in parts)
    for (report,) in ranks.run(work_reducers.steps, world, "micro", [rows.tolist()], k):
        found = float(report.state["threshold"])
        assert lowest / (1 + 2**-7) < found <= lowest
        assert report.state["threshold"].dtype == torch.float64
        assert report.sent == k
        assert report.counted == report.described


def test_a_gradient_of_almost_only_zeros_sends_what_is_not_zero(ranks: Ranks) -> None:
    rows = [[0.0] * 5 + [0.5] + [0.0] * 14, [0.0] * 20]
    for (report,) in ranks.run(work_reducers.steps, 2, "micro", [rows], 4):
        assert float(report.state["threshold"]) == 0.5
        assert report.indices == [5, 10]  # the other rank's turn, where it has nothing
    zeros = [[0.0] * 20] * 2
    for (report,) in ranks.run(work_reducers.steps, 2, "micro", [zeros], 4):
        assert float(report.state["threshold"]) == 0.25  # the authors' 1 / (2 sqrt(k)): nothing here tells
        assert not report.total.any()


def test_a_rank_with_a_bad_number_stops_the_first_step_of_all(ranks: Ranks) -> None:
    rows = [[float("nan")] + [1.0] * 19, [1.0] * 20]
    for (report,) in ranks.run(work_reducers.steps, 2, "micro", [rows], 4):
        assert torch.isnan(report.total[0])
        assert report.counted == report.described
        assert int(report.state["steps"]) == 0


@pytest.mark.parametrize("world", [1, 3])
def test_the_threshold_follows_the_count_of_all_ranks(ranks: Ranks, world: int) -> None:
    grads = [random_rows(world, 300, seed) for seed in range(6)]
    for report in ranks.run(work_reducers.steps, world, "micro", grads, 30):
        for before, step in pairwise(report):
            scale = threshold_scale(int(before.state["selected"]), 30)
            assert float(step.state["threshold"]) == float(before.state["threshold"]) * scale


def test_a_rank_sends_at_most_its_share(ranks: Ranks) -> None:
    grads = [[[3.0, -3.0] * 10] * 2]
    for (report,) in ranks.run(work_reducers.steps, 2, "micro", grads, 4):
        assert report.indices == [0, 1, 10, 11]
        assert int(report.state["selected"]) == report.sent == 4
        assert report.counted == report.described


@pytest.mark.parametrize("world", [2, 3])
def test_the_density_is_about_the_one_asked_for_from_the_first_step_on(ranks: Ranks, world: int) -> None:
    numel, k, steps = 3000, 150, 40
    torch.manual_seed(0)
    # Parts that differ by a factor of 30, as layers do.
    size = torch.cat([torch.full((numel // 3,), 0.03), torch.full((numel // 3,), 0.3), torch.ones(numel // 3)])
    grads = (torch.randn(steps, world, numel) * size).tolist()
    report = ranks.run(work_reducers.steps, world, "micro", grads, k)[0]
    assert all(0.85 * k < step.sent <= k for step in report)
    assert sum(step.sent for step in report) > 0.9 * k * steps


def test_nothing_is_sent_when_nothing_is_asked_for(ranks: Ranks) -> None:
    for first, second in ranks.run(work_reducers.steps, 2, "micro", [random_rows(2, 20, 5)] * 2, 0):
        assert not first.total.any()
        assert not second.total.any()


@pytest.mark.parametrize("world", [2, 4, 64])
def test_the_planned_traffic_is_that_of_the_specification(world: int) -> None:
    n, k = 1_000_000, 6400
    planned = collectives.build("micro").traffic(Load(n, 8 * k, k, world))
    assert planned.messages == 4 * (world - 1)
    assert planned.sent_bytes == pytest.approx((world - 1) * (8 + 4 * k / world + 8 * k / world), abs=world)
