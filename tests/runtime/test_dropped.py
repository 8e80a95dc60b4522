"""A model that is dropped without `detach`: nothing of it stays, on each rank as soon as Python collects it there."""

from __future__ import annotations

from typing import Any

import pytest
from runtime import work_dropped as work
from runtime.pool import Pool

Options = dict[str, Any]
DDP: Options = {}
EVERY_KIND: dict[str, Options] = {
    "ddp": DDP,
    "topk": {"scheme": "topk", "density": 0.1},
    "oktopk": {"scheme": "oktopk", "density": 0.1},
    "lr_scaled": {"scheme": "topk", "density": 0.1, "memory": "lr_scaled"},
    "ssfusion_oi": {"scheme": "ssfusion_oi", "density": 0.1, "profile_iters": 2},
    "auto": {"scheme": "auto"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_KIND)
def test_a_model_that_is_dropped_keeps_no_thread_and_no_descriptor(pool: Pool, name: str) -> None:
    for report in pool.run(work.one_after_another, 3, EVERY_KIND[name]):
        assert all(report["equal"]), report
        assert all(report["gone"]), report
        assert len(set(report["held"])) == 1, report


def test_the_model_alone_keeps_its_exchange(pool: Pool) -> None:
    for equal in pool.run(work.what_keeps_it, 3, DDP):
        assert all(equal)


def test_a_forked_process_that_collects_an_exchange_leaves_it_to_its_parent(pool: Pool) -> None:
    assert all(pool.run(work.in_a_child, 3, EVERY_KIND["oktopk"]))
