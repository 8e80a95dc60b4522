"""All ranks stop after the same step, whichever of them is asked and whenever."""

import pytest
from runtime.pool import Pools
from runtime.work_stop import STEPS, last_step


@pytest.mark.parametrize("one_machine", [True, False], ids=["file", "store"])
def test_all_ranks_stop_after_the_same_step(pool: Pools, tmp_path, one_machine):
    for seed in range(12):
        folder = tmp_path / f"run-{one_machine}" / f"attempt-{seed}"
        folder.mkdir(parents=True)
        world = 1 + seed % 4
        found = pool.run(last_step, world, str(folder), seed, one_machine, seed % 3 == 0)
        assert len(set(found)) == 1, (seed, found)
        assert found[0] < 25 < STEPS
