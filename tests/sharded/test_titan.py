"""The recipe for torchtitan, on a stand-in for it: exchanged by ssfx, and refused where that cannot be."""

from types import SimpleNamespace
from typing import Any

import pytest
from sharded import titan
from sharded.conftest import Run

FOUR_BITS = {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32)", "memory": "residual"}


@pytest.mark.parametrize(("options", "exact"), [({"scheme": "ddp"}, True), (FOUR_BITS, False)], ids=["ddp", "4 bits"])
def test_a_trainer_of_torchtitan_exchanges_by_ssfx(ranks: Run, options: Any, exact: bool) -> None:
    for apart, stats, saved, closed in ranks(titan.steps, 2, options):
        assert (apart == 0) == exact
        assert stats["steps"] == 3
        assert stats["sent_bytes"] == stats["planned_bytes"] > 0
        assert saved == (not exact)
        assert closed


@pytest.mark.parametrize(
    ("part", "name", "value", "word"),
    [
        ("training", "disable_cuda_graphs", False, "set training.disable_cuda_graphs"),
        ("parallelism", "spmd_backend", "spmd_types", "use partial_dtensor"),
        ("parallelism", "pipeline_parallel_degree", 2, "set parallelism.pipeline_parallel_degree=1"),
        ("", "loss", SimpleNamespace(loss_fn=None), "config.loss = config.loss.loss_fn"),
    ],
)
def test_what_torchtitan_does_that_cannot_be_followed_is_refused(
    ranks: Run, part: str, name: str, value: Any, word: str
) -> None:
    for text in ranks(titan.refusal, 2, part, name, value):
        assert word in text
        assert "\n" not in text
