"""MergeComp's measured search on real processes: it ends, ranks agree all the way, and a resumed one goes on."""

from __future__ import annotations

import torch
from runtime import work_tuner
from runtime.pool import Pool

from ssfx.schemes.search.measured_search import most_probes


def test_the_search_ends_with_two_groups_on_which_all_ranks_agree(pool: Pool) -> None:
    reports = pool.run(work_tuner.searches, 2)
    first = reports[0]
    for report in reports:
        for key in ("plans", "settled", "groups", "probe_times_s"):
            assert report[key] == first[key], key
        assert all(torch.equal(report["weights"][n], first["weights"][n]) for n in first["weights"])
    assert len(first["groups"]) == 2
    assert len(set(first["plans"])) > 2  # the dense one of the first iterations, and more than one cut
    assert first["last"] == first["settled"]
    assert len(first["probe_times_s"]) <= most_probes(first["tensors"], step=2, warmup=1)
    assert len(first["kept"]) == first["tensors"]


def test_a_resumed_search_goes_on_where_it_was(pool: Pool) -> None:
    for before, loaded, ended in pool.run(work_tuner.goes_on_after_a_resume, 2):
        assert before
        assert loaded == before
        assert ended
