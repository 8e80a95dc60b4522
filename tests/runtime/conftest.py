from __future__ import annotations

from collections.abc import Iterator

import pytest
from runtime.pool import Pools


@pytest.fixture(scope="session")
def pool() -> Iterator[Pools]:
    made = Pools()
    yield made
    made.close()
