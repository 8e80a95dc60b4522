"""`pool`: real ranks. `ranks`: virtual ones, and real ones, most of which tests/conftest.py leaves to the night."""

from collections.abc import Iterator

import pytest
from runtime.pool import Pools
from runtime.ranks import Ranks, Virtual


@pytest.fixture(scope="session")
def pool() -> Iterator[Pools]:
    made = Pools()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["virtual", "gloo"])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    return Virtual() if request.param == "virtual" else request.getfixturevalue("pool")


@pytest.fixture(scope="session")
def two() -> Ranks:
    """Virtual ranks for tests of which every case runs for every change."""
    return Virtual()
