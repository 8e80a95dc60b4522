"""gTop-k: the golden cases on real processes, and the tree for any number of ranks."""

import random

import pytest
import torch
from collectives import golden, work_reducers
from runtime.ranks import Ranks

from ssfx.collectives import Load, Traffic, collectives
from ssfx.collectives.gtopk import Entries, merged

CASES = [
    pytest.param(name, marks=pytest.mark.slow if golden.CASES[name]["params"]["P"] > 3 else [])
    for name in golden.of_scheme("gtopk")
]


def random_rows(world: int, numel: int, seed: int) -> list[list[float]]:
    """Return quarters without zeros, so that sums are exact in any order."""
    rng = random.Random(seed)
    return [[rng.choice([-1, 1]) * rng.randint(1, 40) / 4 for _ in range(numel)] for _ in range(world)]


@pytest.mark.parametrize("name", CASES)
def test_golden_on_real_processes(ranks: Ranks, name: str) -> None:
    case = golden.CASES[name]
    params, wanted, acc = case["params"], case["expected"]["conserving"], case["inputs"]["acc"]
    reports = ranks.run(work_reducers.steps, params["P"], "gtopk", [acc], params["k"])
    for rank, (report,) in enumerate(reports):
        assert report.indices == wanted["final_indices"]
        assert report.total.tolist() == wanted["sum"]
        assert report.residual.tolist() == wanted["residual"][rank]
        assert report.sent == len(wanted["selected"][rank])
        assert report.counted == report.described
    kept = torch.stack([report.residual for (report,) in reports]).sum(0)
    assert (torch.tensor(acc).sum(0) - reports[0][0].total - kept).tolist() == wanted["lost"]


@pytest.mark.parametrize("name", golden.of_scheme("gtopk"))
def test_golden_merges(name: str) -> None:
    case = golden.CASES[name]
    wanted, acc = case["expected"]["conserving"], torch.tensor(case["inputs"]["acc"], dtype=torch.float32)
    lists: list[Entries] = [(torch.tensor(at), acc[r][at]) for r, at in enumerate(wanted["selected"])]
    for merge in wanted["merges"]:
        receiver, sender = merge["receiver"], merge["sender"]
        lists[receiver], dropped = merged(lists[receiver], lists[sender], case["params"]["k"])
        assert _as_json(lists[receiver]) == merge["kept"]
        assert _as_json(dropped) == merge["dropped"]


def _as_json(entries: Entries) -> dict[str, float]:
    return {str(i): value for i, value in zip(entries[0].tolist(), entries[1].tolist(), strict=True)}


def test_sums_that_cancel_are_dropped() -> None:
    one, other = (torch.tensor([1, 4]), torch.tensor([2.0, 1.0])), (torch.tensor([1, 2]), torch.tensor([-2.0, 0.5]))
    kept, dropped = merged(one, other, 3)
    assert _as_json(kept) == {"2": 0.5, "4": 1.0}
    assert _as_json(dropped) == {"1": 0.0}


@pytest.mark.parametrize("world", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_every_rank_but_the_root_sends_one_record_up(ranks: Ranks, world: int) -> None:
    nbytes = 4 * (1 + 2 * 3)
    children = {1: [0], 2: [1, 0], 3: [2, 0, 0], 5: [3, 1, 0, 0, 0]}[world]
    for rank, (report,) in enumerate(ranks.run(work_reducers.steps, world, "gtopk", [random_rows(world, 9, 1)], 3)):
        messages = (rank > 0) + children[rank]
        assert report.counted == Traffic(messages, messages * nbytes)


def test_fewer_elements_than_asked_for(ranks: Ranks) -> None:
    acc = [[1.0, 0.0], [0.0, 0.0], [0.5, 0.25]]
    for (report,) in ranks.run(work_reducers.steps, 3, "gtopk", [acc], 8):
        assert report.total.tolist() == [1.5, 0.25]
        assert not report.residual.any()


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_bad_rank_is_seen_by_all_wherever_it_is_in_the_tree(ranks: Ranks, culprit: int) -> None:
    acc = random_rows(3, 10, 2)
    acc[culprit][4] = float("inf")
    for (report,) in ranks.run(work_reducers.steps, 3, "gtopk", [acc], 2):
        assert bool(torch.isnan(report.total).any())
        assert report.counted == report.described


@pytest.mark.parametrize(("world", "rounds"), [(1, 0), (2, 1), (3, 2), (4, 2), (64, 6)])
def test_the_plan_charges_the_critical_path(world: int, rounds: int) -> None:
    load = Load(10_000, 800, 100, world)
    phases = collectives.build("gtopk").phases(load)
    assert [phase.primitive for phase in phases] == ["send", "decode", "encode"] * rounds + ["broadcast"]
    assert collectives.build("gtopk").traffic(load) == Traffic(2 * rounds, 2 * rounds * 4 * (1 + 2 * 100))
