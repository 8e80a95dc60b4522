"""Ok-Topk: the golden cases on real processes, its pure rules, and what thresholds do between evaluations."""

import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from collectives import golden, work_reducers
from runtime.ranks import Ranks, comm_of

from ssfx.collectives import Load, Reduction, Traffic, collectives, ok_topk
from ssfx.collectives.comm import Comm
from ssfx.collectives.magnitudes import among, kth_magnitude, passing
from ssfx.collectives.ok_topk import Entries, OkTopk, OkTopkOptions
from ssfx.collectives.pairs import pack, unpack
from ssfx.collectives.reducer import State
from ssfx.core.errors import ConfigError

Rows = list[list[float]]
BALANCES = {"never": math.inf, "usual": 4.0, "always": 0.0}
"""From how many times the mean on entries are moved."""
CASES = [
    pytest.param(name, marks=pytest.mark.slow if golden.CASES[name]["params"]["P"] > 3 else [])
    for name in golden.of_scheme("ok_topk")
]


def random_rows(world: int, numel: int, seed: int, zeros: float = 0.1) -> Rows:
    """Return quarters, so that sums are exact in any order."""
    rng = random.Random(seed)
    return [
        [0.0 if rng.random() < zeros else rng.choice([-1, 1]) * rng.randint(1, 40) / 4 for _ in range(numel)]
        for _ in range(world)
    ]


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("name", CASES)
def test_golden_on_real_processes(ranks: Ranks, name: str, balance: str) -> None:
    case = golden.CASES[name]
    params = case["params"]
    world, expected = params["P"], case["expected"]["steps"]
    options = {key: params[key] for key in ("tau_prime", "tau")}
    grads = [step["grad"] for step in expected]
    reports = ranks.run(watch, world, options, grads, params["k"], BALANCES[balance])
    for step, wanted in enumerate(expected):
        bounds: list[int] = wanted["boundaries"]
        region: dict[int, float] = {}
        for rank in range(world):
            seen = reports[rank][step]
            assert seen.selected == wanted["local_selected"][rank]
            assert seen.split_bytes == wanted["split_payload_bytes_sent"][rank]
            assert _per_region(seen.selected, bounds) == wanted["split_counts"][rank]
            assert seen.state["boundaries"] == bounds
            assert seen.state["threshold_local"] == pytest.approx(wanted["local_threshold_next"][rank], rel=1e-12)
            assert seen.state["threshold_global"] == pytest.approx(wanted["global_threshold_next"], rel=1e-12)
            assert seen.indices == wanted["global_selected"]
            assert _per_region(seen.indices, bounds) == wanted["owner_counts"]
            assert seen.sum == wanted["sum"]
            assert seen.residual == wanted["residual"][rank]
            if balance == "always" and wanted["balanced_counts"] is not None:
                assert seen.balanced == wanted["balanced_counts"][rank]
            else:
                assert seen.balanced is None  # three or four ranks never hold more than four times the mean
            region |= seen.region
        assert region == {int(index): value for index, value in wanted["reduced_nonzero"].items()}


def _per_region(indices: list[int], bounds: list[int]) -> list[int]:
    return [sum(lo <= i < hi for i in indices) for lo, hi in pairwise(bounds)]


@pytest.mark.parametrize("name", golden.of_scheme("ok_topk"))
def test_golden_rules(name: str) -> None:
    case = golden.CASES[name]
    params = case["params"]
    for step in case["expected"]["steps"]:
        evaluates = step["t"] % params["tau_prime"] == 0
        for rank, selected in enumerate(step["local_selected"]):
            acc, used = torch.tensor(step["acc"][rank], dtype=torch.float32), step["local_threshold_used"][rank]
            if evaluates:
                assert kth_magnitude(acc, params["k"]) == used
            chosen = passing(acc, used, 2 * params["k"])
            assert chosen.tolist() == selected
            if step["boundary_proposals"] is not None:
                proposed = ok_topk.boundary_proposals(chosen, params["n"], params["P"])
                assert proposed.tolist() == step["boundary_proposals"][rank]
        if step["balance_moves"] is not None:
            assert ok_topk.balanced_counts(step["owner_counts"]) == step["balanced_counts"]
            assert ok_topk.balance_moves(step["owner_counts"]) == step["balance_moves"]


@pytest.mark.parametrize("threshold", [0.0, 0.25, 2.5, 2.500000001, 11.0, math.inf])
def test_passing_is_a_comparison_with_a_cap(threshold: float) -> None:
    a = torch.tensor(random_rows(1, 200, seed=7)[0])
    magnitude = a.abs().double()
    reference = ((magnitude >= threshold) & (a != 0)).nonzero().view(-1)
    assert torch.equal(passing(a, threshold, 200), reference)
    few = passing(a, threshold, 20)
    largest = sorted(reference.tolist(), key=lambda i: (-abs(float(a[i])), i))[:20]
    assert few.tolist() == sorted(largest)


def test_the_kth_magnitude_of_little_or_nothing() -> None:
    a = torch.tensor([3.0, -1.0, 2.0])
    assert [kth_magnitude(a, k) for k in (0, 1, 2, 3, 9)] == [math.inf, 3.0, 2.0, 1.0, 1.0]
    assert kth_magnitude(a[:0], 2) == 0.0


def test_among_finds_members() -> None:
    ascending = torch.tensor([2, 5, 9])
    assert among(torch.tensor([0, 2, 6, 9, 11]), ascending).tolist() == [False, True, False, True, False]
    assert among(torch.tensor([0, 2]), ascending[:0]).tolist() == [False, False]
    assert among(ascending[:0], ascending).tolist() == []


@pytest.mark.parametrize("counts", [[0, 0, 0], [5, 0, 0], [0, 0, 7], [1, 9, 2, 0, 3], [4], [3, 3, 3]])
def test_balancing_keeps_the_order_of_the_concatenation(counts: list[int]) -> None:
    moves, wanted = ok_topk.balance_moves(counts), ok_topk.balanced_counts(counts)
    assert [sum(row) for row in moves] == counts
    assert [sum(column) for column in zip(*moves, strict=True)] == wanted
    assert max(wanted) - min(wanted) <= 1
    sources = [source for source, count in enumerate(counts) for _ in range(count)]
    lists: list[list[int]] = [[] for _ in counts]
    for source, row in enumerate(moves):
        for target, count in enumerate(row):
            lists[target] += [source] * count
    assert [source for part in lists for source in part] == sources


def test_it_balances_when_one_rank_has_more_than_four_times_the_mean() -> None:
    assert OkTopk.balance_from == 4
    assert not ok_topk.needs_balance([8, 0, 0, 0], 4)
    assert ok_topk.needs_balance([8, 0, 0, 0, 0], 4)
    assert not ok_topk.needs_balance([0, 0, 0, 0, 0], 4)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 100])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_boundary_proposals_are_sorted_and_inside(count: int, world: int) -> None:
    chosen = torch.arange(100)[-count:] if count else torch.arange(0)
    proposed = ok_topk.boundary_proposals(chosen, 100, world).tolist()
    assert len(proposed) == world - 1
    assert proposed == sorted(proposed)
    assert all(0 <= cut < 100 for cut in proposed)


@pytest.mark.slow
def test_balancing_moves_what_one_rank_holds(ranks: Ranks) -> None:
    # All large values lie in one region, which tau keeps where it is after a first step of evenly spread ones.
    even = [[4.0 if i % 2 else 0.25 for i in range(50)] for _ in range(5)]
    crowded = [[100.0 + i if 20 <= i < 29 else 0.0 for i in range(50)] for _ in range(5)]
    outcomes = []
    for balance in BALANCES:
        reports = ranks.run(watch, 5, {}, [even, crowded], 25, BALANCES[balance])
        outcomes.append([(report[1].sum, report[1].indices, report[1].residual) for report in reports])
        held = [report[1].balanced for report in reports]
        assert (None in held) == (balance == "never")
        if balance != "never":
            assert max(held) - min(held) <= 1
            assert sum(held) == len(reports[0][1].indices)
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_mass_is_conserved_while_entries_are_moved(ranks: Ranks, world: int) -> None:
    grads = [random_rows(world, 60, seed) for seed in range(8)]
    reducer = OkTopk(OkTopkOptions(tau_prime=3, tau=2))
    reducer.balance_from = BALANCES["always"]
    before = torch.zeros(60)
    for step, rows in enumerate(zip(*ranks.run(work_reducers.steps, world, reducer, grads, 6), strict=True)):
        put_in = torch.tensor(grads[step]).sum(0) + before
        before = torch.stack([row.residual for row in rows]).sum(0)
        assert torch.equal(put_in, rows[0].total + before)
        for row in rows:
            assert row.counted == row.described
            assert torch.equal(row.total, rows[0].total)
            assert torch.equal(row.state["boundaries"], rows[0].state["boundaries"])
            assert row.state["threshold_global"] == rows[0].state["threshold_global"]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_with_all_elements_kept_it_is_the_dense_sum(ranks: Ranks, world: int) -> None:
    grads = [[[abs(value) + 0.25 for value in row] for row in random_rows(world, 30, seed)] for seed in range(3)]
    for report in ranks.run(work_reducers.steps, world, "ok_topk(tau_prime=1,tau=1)", grads, 30):
        for step, rows in zip(report, grads, strict=True):
            assert torch.equal(step.total, torch.tensor(rows).sum(0))
            assert not step.residual.any()


def test_canonical_thresholds_stay_between_evaluations(ranks: Ranks) -> None:
    # Forty large elements that grow slowly, so that counts stay at k without an evaluation.
    grads = [
        [[*(100.0 + 7 * step + (13 * i + 5 * rank) % 40 for i in range(40)), *[0.25] * 360] for rank in range(3)]
        for step in range(7)
    ]
    for report in ranks.run(work_reducers.steps, 3, "ok_topk(tau_prime=3,tau=6)", grads, 40):
        local = [float(step.state["threshold_local"]) for step in report]
        total = [float(step.state["threshold_global"]) for step in report]
        assert not any(int(step.state["stale"]) for step in report)
        for thresholds in (local, total):
            assert thresholds[0] == thresholds[1] == thresholds[2] != thresholds[3] == thresholds[4] == thresholds[5]
            assert thresholds[5] != thresholds[6]
        assert [int(step.state["steps"]) for step in report] == list(range(1, 8))


def test_stale_thresholds_are_evaluated_in_the_next_step(ranks: Ranks) -> None:
    usual = random_rows(2, 50, seed=1, zeros=0)
    nothing: Rows = [[0.0] * 50] * 2
    large = [[100 * value for value in row] for row in random_rows(2, 50, seed=2, zeros=0)]
    grads = [large, nothing, usual, large, usual]
    reports = ranks.run(work_reducers.steps, 2, "ok_topk", grads, 3)
    for report in reports:
        for step in report[1:]:
            found, evaluated = len(step.indices or []), step.state["stale"]
            assert int(evaluated) == (found == 0 or found > 6)
    first = [float(step.state["threshold_global"]) for step in reports[0]]
    after_stale = [i + 1 for i, step in enumerate(reports[0][:-1]) if int(step.state["stale"])]
    assert after_stale, "the data should make thresholds stale"
    for i in after_stale:
        assert len(reports[0][i].indices or []) == 3
        assert first[i] == min(reports[0][i].total[reports[0][i].indices].abs().tolist())


def test_equal_magnitudes_everywhere_are_capped_at_twice_k(ranks: Ranks) -> None:
    grads: list[Rows] = [[[2.0, -2.0] * 10] * 3] * 2
    for first, second in ranks.run(work_reducers.steps, 3, "ok_topk", grads, 4):
        assert (first.sent, second.sent) == (8, 8)
        assert first.indices == list(range(8))
        assert first.total[:8].tolist() == [6.0, -6.0] * 4


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_bad_rank_is_seen_by_all_while_boundaries_are_exchanged(ranks: Ranks, world: int) -> None:
    grads = [random_rows(world, 12, seed=3)]
    grads[0][-1][5] = math.nan
    for (report,) in ranks.run(work_reducers.steps, world, "ok_topk", grads, 3):
        assert bool(torch.isnan(report.total).any())
        assert report.counted == report.described


@pytest.mark.parametrize("kept", [0, 30])
def test_nothing_and_everything_can_be_asked_for(ranks: Ranks, kept: int) -> None:
    grads = [random_rows(3, 20, seed=4)]
    for (report,) in ranks.run(work_reducers.steps, 3, "ok_topk", grads, kept):
        assert bool(report.total.any()) == (kept > 0)


def test_indices_beyond_the_mantissa_of_a_float_arrive_exactly() -> None:
    indices, values = torch.tensor([3, 2**24 + 1, 2**31 - 2]), torch.tensor([1.0, -0.5, 3e-39])
    arrived = unpack(pack(indices, values))
    assert torch.equal(arrived[0], indices)
    assert torch.equal(arrived[1], values)


@pytest.mark.parametrize("world", [2, 4, 8, 64])
def test_the_planned_traffic_is_that_of_the_specification(world: int) -> None:
    n, k = 1_000_000, 6400
    rare = collectives.build(f"ok_topk(tau_prime={10**9},tau={10**9})").traffic(Load(n, 8 * k, k, world))
    share = (world - 1) / world
    assert rare.sent_bytes == pytest.approx(16 * k * share + 16 * (world - 1), abs=world)
    assert rare.messages == 4 * (world - 1)
    always = collectives.build(f"ok_topk(tau_prime=1,tau={10**9})").traffic(Load(n, 8 * k, k, world))
    assert always.sent_bytes == pytest.approx(8 * (k + min(n, world * k)) * share + 16 * (world - 1), abs=world)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="tau must be at least 1, got 0"):
        collectives.build("ok_topk(tau=0)")


def test_options_reach_the_state(ranks: Ranks) -> None:
    grads: list[Any] = [random_rows(2, 40, seed) for seed in range(5)]
    often, seldom = (
        ranks.run(work_reducers.steps, 2, f"ok_topk(tau={tau},tau_prime=2)", grads, 8)[0] for tau in (1, 100)
    )
    bounds = [[step.state["boundaries"].tolist() for step in report] for report in (often, seldom)]
    assert len({tuple(cut) for cut in bounds[0]}) > 1
    assert len({tuple(cut) for cut in bounds[1]}) == 1


# ---- on each rank ---------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """One step on one rank: what was selected, sent for the split, summed, held after balancing, and the outcome."""

    selected: list[int] = field(default_factory=list)
    split_bytes: int = 0
    region: dict[int, float] = field(default_factory=dict)
    balanced: int | None = None
    sum: list[float] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)


class Watched(OkTopk):
    """Ok-Topk that notes in `seen` what its stages return."""

    def __init__(self, options: OkTopkOptions, balance_from: float) -> None:
        super().__init__(options)
        self.balance_from = balance_from
        self.seen = Seen()

    def select(self, work: Reduction, evaluates: bool) -> torch.Tensor:
        chosen = super().select(work, evaluates)
        self.seen.selected = chosen.tolist()
        return chosen

    def sum_region(self, chosen: torch.Tensor, work: Reduction, comm: Comm) -> tuple[torch.Tensor | None, int, Traffic]:
        before = comm.sent.sent_bytes
        region, most, used = super().sum_region(chosen, work, comm)
        self.seen.split_bytes = comm.sent.sent_bytes - before - 8 * (comm.world_size - 1)
        if region is not None:
            first = int(work.state["boundaries"][comm.rank])
            self.seen.region = {first + i: value for i, value in enumerate(region.tolist()) if value}
        return region, most, used

    def balance(self, own: Entries, moves: list[list[int]], comm: Comm) -> torch.Tensor:
        message = super().balance(own, moves, comm)
        self.seen.balanced = message.numel() // 2
        return message


def watch(
    group: Any,
    rank: int,
    world: int,
    options: dict[str, Any],
    grads: list[list[list[float]]],
    kept: int,
    balance_from: float,
) -> list[Seen]:
    """Feed grads[step][rank] through Ok-Topk with plain error feedback."""
    reducer, comm = Watched(OkTopkOptions(**options), balance_from), comm_of(group)
    numel = len(grads[0][0])
    state: State = reducer.initial_state(numel, world)
    vector, reports = torch.zeros(numel), []
    for rows in grads:
        vector = vector + torch.tensor(rows[rank], dtype=torch.float32)
        reducer.seen = Seen()
        before = comm.sent
        reduced = reducer.reduce(Reduction(vector, kept, state=state), comm)
        counted = Traffic(comm.sent.messages - before.messages, comm.sent.sent_bytes - before.sent_bytes)
        assert reduced.traffic == counted
        assert reduced.indices is not None
        total = torch.zeros(numel)
        total[reduced.indices] = reduced.values
        seen = reducer.seen
        seen.sum, seen.indices, seen.residual = total.tolist(), reduced.indices.tolist(), vector.tolist()
        seen.state = {name: value.tolist() for name, value in state.items()}
        reports.append(seen)
    return reports
