"""a2a_ag against the algorithm written out, and what it is planned to cost."""

from typing import Any

import numpy as np
import pytest
import torch
from collectives import work_reducers
from collectives.test_reducers import agree, gradients
from plan.instances import affine_costs
from runtime import work
from runtime.ranks import Ranks

from ssfx.collectives import Load
from ssfx.simulator.pricing.features import compressed
from ssfx.simulator.pricing.prices import Prices

FIVE = pytest.param(5, marks=pytest.mark.slow)


def largest(values: torch.Tensor, k: int) -> list[int]:
    ranked = sorted(range(len(values)), key=lambda i: (-abs(float(values[i])), i))
    return sorted(i for i in ranked[:k] if values[i])


def written_out(acc: list[list[float]], kept: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the sum and what every rank keeps, from the accumulated gradients of all ranks."""
    num, left = len(acc), [torch.tensor(row) for row in acc]
    picked = torch.zeros(len(acc), len(acc[0]))
    for rank, row in enumerate(left):
        at = largest(row, kept)
        picked[rank, at] = row[at]
        row[at] = 0
    total, start = torch.zeros(len(acc[0])), 0
    for owner, part in enumerate(picked.sum(0).tensor_split(num)):
        share = kept // num + (owner < kept % num)
        at = largest(part, max(1, share))
        total[start : start + len(part)][at] = part[at]
        part[at] = 0
        left[owner][start : start + len(part)] += part
        start += len(part)
    return total, left


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, FIVE])
def test_every_step_is_the_algorithm_written_out(ranks: Ranks, world: int) -> None:
    for numel, kept in ((1, 1), (2, 1), (7, 3), (12, 12), (50, 5), (200, 40)):
        grads = gradients(world, numel, 3, seed=numel)
        reports = ranks.run(work_reducers.steps, world, "a2a_ag", grads, kept)
        residual = [torch.zeros(numel) for _ in range(world)]
        for step, rows in enumerate(zip(*reports, strict=True)):
            acc = [(kept_back + torch.tensor(g)).tolist() for kept_back, g in zip(residual, grads[step], strict=True)]
            total, residual = written_out(acc, kept)
            agree(rows)
            assert torch.equal(rows[0].total, total)
            assert [row.residual.tolist() for row in rows] == [left.tolist() for left in residual]


def test_the_result_has_a_share_of_every_part(ranks: Ranks) -> None:
    grads = [[[100.0, 90.0, 80.0, 70.0, 1.0, 2.0], [50.0, 40.0, 30.0, 20.0, 4.0, 3.0]]]
    for (report,) in ranks.run(work_reducers.steps, 2, "a2a_ag", grads, 2):
        assert report.indices == [0]  # nobody sent any of the second part
    for (report,) in ranks.run(work_reducers.steps, 2, "a2a_ag", grads, 6):
        assert report.total.tolist() == [150.0, 130.0, 110.0, 90.0, 5.0, 5.0]


def test_the_planned_time_is_that_of_the_specification() -> None:
    costs, numel, p = affine_costs(), 2_000_000, 8
    q = 8 * numel // 100
    load = Load(numel, q, numel // 100, p)
    ring_s = 7 * 2e-5 + 7 / 8 * q * 8e-10 + 7 * 2e-5 + 7 * q / 8 * 8e-10
    codec_s = costs.encode(numel / p) + costs.decode(numel / p)
    assert Prices(costs).load_s("a2a_ag", "topk", load) == pytest.approx(ring_s + codec_s, rel=1e-12)
    table = np.array([compressed("topk", ((numel,),), 0.01)]).T
    assert Prices(costs).decode_s("topk", "a2a_ag", table) == [costs.decode(numel)]  # not only 1/P of it


SLOW_NETWORK = affine_costs(2, beta=1e-5, encode=(1e-5, 0), decode=(1e-6, 0), host=(1e-5, 0))
TRAININGS: list[dict[str, Any]] = [
    {"scheme": "hipress", "costs": SLOW_NETWORK},
    {"scheme": "espresso", "costs": SLOW_NETWORK},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", TRAININGS, ids=lambda o: "-".join(str(v) for k, v in o.items() if k != "costs"))
def test_the_per_tensor_schemes_train_with_it(ranks: Ranks, options: dict[str, Any]) -> None:
    options = {**options, "compressor": "topk", "density": 0.05}
    for violation, kept in ranks.run(work.conserves_mass, 2, options):
        assert violation < 1e-5
        assert kept > 0
    assert all(ranks.run(work.resumes_exactly, 2, options, 7))
    for report in ranks.run(work.rolls_back, 2, options, float("nan")):
        assert report["skipped"]
        assert report["memory_kept"]
        assert report["goes_on"]
    first, second = ranks.run(work.survives_disorder, 2, options)
    assert all(torch.equal(first[name], second[name]) for name in first)
