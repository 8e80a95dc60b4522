"""The recipe for torchtitan, on a stand-in for it: exchanged by ssfx, and refused where that cannot be."""

from types import SimpleNamespace
from typing import Any

import pytest
from runtime.ranks import each_rank
from sharded import titan
from sharded.conftest import Run
from sharded.titan import Trainer, install

FOUR_BITS = {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32)", "memory": "residual"}


@pytest.mark.parametrize(("options", "exact"), [({"scheme": "ddp"}, True), (FOUR_BITS, False)], ids=["ddp", "4 bits"])
@each_rank(2, by="ranks")
def test_a_trainer_of_torchtitan_exchanges_by_ssfx(group, rank, world, options, exact):
    """Train 3 steps by the recipe and by the stand-in alone."""
    install()
    from ssfx.runtime.integrations.torchtitan import with_ssfx

    mine, theirs = with_ssfx(Trainer.Config(rank=rank), **options).build(), Trainer.Config(rank=rank).build()
    for step in range(3):
        mine.train_step(step)
        theirs.train_step(step)
    pairs = zip(mine.model_parts[0].parameters(), theirs.model_parts[0].parameters(), strict=True)
    apart = max((a.to_local() - b.to_local()).abs().sum().item() for a, b in pairs)
    stats, saved = mine.sync.stats(), "ssfx" in mine.checkpointer.states
    mine.close()
    assert (apart == 0) == exact
    assert stats["steps"] == 3
    assert stats["sent_bytes"] == stats["planned_bytes"] > 0
    assert saved == (not exact)
    assert mine.closed


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
