"""No scheme can deadlock: every one of them, for thirty steps of delays, disorder and missing gradients."""

from __future__ import annotations

import pytest
import torch
from runtime import work_stress
from runtime.cases import name, of_scheme
from runtime.pool import Pool

from ssfx.collectives import collectives
from ssfx.schemes import schemes

STEPS = 30


@pytest.mark.slow
@pytest.mark.parametrize("scheme", schemes.names())
def test_delays_and_disorder_neither_hang_nor_part_the_replicas(pool: Pool, scheme: str) -> None:
    options = of_scheme(scheme, 3)
    results = pool.run(work_stress.under_stress, 3, options, STEPS)
    for weights in results[1:]:
        assert all(torch.equal(weights[n], results[0][n]) for n in weights), name(options)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_lanes_of_all_collectives_follow_one_another(pool: Pool, world: int) -> None:
    results = pool.run(work_stress.all_collectives_at_once, world, STEPS)
    for used, weights in results:
        assert used == len(collectives.names())
        assert all(torch.equal(weights[n], results[0][1][n]) for n in weights)
