"""Where ranks attach or load different things, the error names the first of them and the ranks."""

from __future__ import annotations

from typing import Any

import pytest
from runtime import work_agreement as work
from runtime.pool import Pool
from runtime.test_guards import said
from runtime.work_attach import SPARSE

from ssfx.runtime.agreement import difference

WORDS = {
    "scheme": ["scheme is topk on ranks 0, 2 and oktopk on rank 1"],
    "density": ["option density is 0.05 on ranks 0, 2 and 0.2 on rank 1"],
    "compressor": ["option compressor is 'topk' on", "and 'dgc' on rank 1"],
    "memory": ["memory is residual", "and none on rank 1"],
    "seed": ["seed is 0 on ranks 0, 2 and 3 on rank 1"],
    "costs": ["argument costs is None on ranks 0, 2 and given on rank 1"],
    "scaler": ["GradScaler is none on ranks 0, 2 and scale 65536", "on rank 1"],
    "scale": ["GradScaler is scale 4,", "and scale 2,", "on rank 1"],
    "optimizer": ["kind of the optimizer is SGD on ranks 0, 2 and Adam on rank 1"],
    "rate": ["learning rate of group 0 is 0.1 on ranks 0, 2 and 0.2 on rank 1"],
    "tensor rate": ["learning rate of group 0 is 0.5 on ranks 0, 2 and 0.25 on rank 1"],
    "momentum": ["momentum of group 0 is 0.0 on ranks 0, 2 and 0.9 on rank 1"],
    "groups": ["parameter number 2 is first.bias", "held by group 1 on ranks 0, 2", "held by group 0 on rank 1"],
    "name": ["parameter number 0 is even.weight", "and odd.weight", "on rank 1"],
    "shape": ["parameter number 0 is weight, float32 (4, 4)", "(5, 4)", "on rank 1"],
    "dtype": ["parameter number 0 is weight, float32", "bfloat16 (4, 4)"],
    "more": ["parameter number 1 is missing on ranks 0, 2 and bias, float32 (4,)"],
    "frozen": ["parameter number 2 is 1.weight, float32 (2, 2), frozen on ranks 0, 2"],
    "buffer": ["buffer number 0 is table, float32 (2,) on ranks 0, 2 and table, float32 (3,) on rank 1"],
}


@pytest.mark.parametrize("case", work.CASES)
def test_the_first_thing_that_differs_is_named(pool: Pool, case: str) -> None:
    for text in pool.run(work.differs, 3, case):
        said(text, *WORDS[case], "on every rank")


def test_what_only_some_ranks_have_differs() -> None:
    assert difference([{"a": "1"}, {"a": "1"}]) == ""
    assert difference([{"a": "1"}, {"a": "1", "b": "2"}]) == "b is missing on rank 0 and 2 on rank 1"
    many = [{"step": "6"}] * 7 + [{"step": "3"}] * 2
    assert difference(many) == "step is 6 on ranks 0, 1, 2, 3 and 3 more and 3 on ranks 7, 8"


LOADED = {
    "step": ["step is 6 on ranks 0, 2 and 3 on rank 1", "after the same step"],
    "scale": ["loss scale is 1 on ranks 0, 2 and 2 on rank 1"],
    "skipped": ["skipped_steps is 0 on ranks 0, 2 and 1 on rank 1"],
    "unreadable": ["plan", "cannot be read"],
}


@pytest.mark.parametrize(
    "options",
    [SPARSE, {"scheme": "acpsgd"}, {"scheme": "fused_all", "compressor": "randomk", "density": 0.1}],
    ids=["topk", "acpsgd", "randomk"],
)
@pytest.mark.parametrize("case", work.OTHER)
def test_states_that_do_not_go_together_are_refused_on_every_rank(
    pool: Pool, case: str, options: dict[str, Any]
) -> None:
    for rank, report in enumerate(pool.run(work.loads, 3, case, options)):
        said(report["text"], *LOADED[case])
        assert case != "unreadable" or rank == 1 or "rank 1 cannot load its state" in report["text"]
        assert report["untouched"]
        assert report["steps"] == 8
        assert report["agree"]
