"""The contracts of the runtime, for every scheme, on one worker, four and five; test_conformance: on two and three."""

import pytest
import torch
from plan.options import keeps_all
from runtime import work
from runtime.cases import BIASED, DENSE, SPARSE, in_turn, name, of_scheme, turns
from runtime.ranks import Ranks
from thinned import thinned

from ssfx.schemes import schemes

EVERY = [s.name for s in schemes]


LARGE = (4, 5)


@pytest.mark.parametrize("scheme", EVERY)
def test_one_worker_passes_its_gradients_through(ranks: Ranks, scheme: str) -> None:
    assert max(ranks.run(work.density_one_equals_ddp, 1, "mlp", of_scheme(scheme, 1))) < 2e-6
    assert ranks.run(work.resumes_exactly, 1, of_scheme(scheme, 1), 7) == [True]
    (report,) = ranks.run(work.passes_through, 1, of_scheme(scheme, 1))
    assert report == {"same_gradients": True, "calls": 0}


@pytest.mark.slow
@in_turn("scheme,world", [s for s in EVERY if keeps_all(s) is not None], LARGE)
def test_density_one_equals_ddp(ranks: Ranks, scheme: str, world: int) -> None:
    assert max(ranks.run(work.density_one_equals_ddp, world, "mlp", of_scheme(scheme, world, density=1.0))) < 2e-6


@pytest.mark.slow
@in_turn("scheme,world", [s for s in SPARSE if s not in BIASED], LARGE)
def test_mass_is_conserved(ranks: Ranks, scheme: str, world: int) -> None:
    for violation, kept in ranks.run(work.conserves_mass, world, of_scheme(scheme, world)):
        assert violation < 1e-5
        assert kept > 0


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "world"), thinned(turns(EVERY, LARGE)))
def test_resume_rollback_accumulation_and_disorder(ranks: Ranks, scheme: str, world: int) -> None:
    options = of_scheme(scheme, world)
    assert all(ranks.run(work.resumes_exactly, world, options, 7))
    assert max(ranks.run(work.accumulates, world, options)) < 2e-3
    reports = ranks.run(work.rolls_back, world, options, float("nan"))
    for report in reports:
        assert report["skipped"]
        assert report["without_grad"]
        assert report["memory_kept"]
        assert report["weights_kept"]
        assert report["goes_on"]
    for work_function in (work.survives_disorder, work.rank_without_gradients):
        results = ranks.run(work_function, world, options)
        for weights in results[1:]:
            assert all(torch.equal(weights[n], results[0][n]) for n in weights), name(options)


def test_no_scheme_is_left_out() -> None:
    assert sorted([*DENSE, *SPARSE]) == EVERY
