"""`pool`: real ranks. `ranks`: virtual ones; and real ones, for the first case of a test, and every night for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from runtime.pool import Pools
from runtime.ranks import Ranks, Virtual

FAST = 5
"""Of so many cases on virtual ranks one is among what `make test-fast` runs."""


@pytest.fixture(scope="session")
def pool() -> Iterator[Pools]:
    made = Pools()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["virtual", "gloo"])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    return Virtual() if request.param == "virtual" else request.getfixturevalue("pool")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[tuple[Any, ...]] = Counter()
    for item in items:
        if on := getattr(item, "callspec", None) and item.callspec.params.get("ranks"):
            number = seen[case := (item.path, item.originalname, on)]
            seen[case] += 1
            if on == "gloo" and number:
                item.add_marker(pytest.mark.nightly)
            if on == "virtual" and number % FAST:
                item.add_marker(pytest.mark.slow)
