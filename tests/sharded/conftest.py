from collections.abc import Callable, Iterator
from typing import Any

import pytest
from runtime.pool import Pool

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Run]:
    """Return run(work, world, *args); a mesh is of all ranks of a process group, so each world has a pool."""
    pools: dict[int, Pool] = {}

    def run(work: Callable[..., Any], world: int, *args: Any) -> list[Any]:
        if world not in pools:
            pools[world] = Pool(world)
        return pools[world].run(work, world, *args)

    yield run
    for one in pools.values():
        one.close()
