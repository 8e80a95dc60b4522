"""What holds for every test: torch, once a test module has imported it, uses one thread, as ranks do.

What was run or measured in this checkout is not seen: results are elsewhere. Compiled kernels are where a user's are,
even for tests that keep caches of data apart, since compiling takes seconds.
Files whose tests take longest come first, so that test processes that share the files out end at about the same time.
"""

import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from processes import Started

from ssfx.core.paths import cache_dir

hypothesis.settings.register_profile(
    "ssfx", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)  # how long an example takes is the machine's business
hypothesis.settings.load_profile("ssfx")


@pytest.fixture(scope="session", autouse=True)
def _results_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSFX_RESULTS", str(tmp_path_factory.mktemp("results")))
        if "NUMBA_CACHE_DIR" not in os.environ:
            patch.setenv("NUMBA_CACHE_DIR", str(cache_dir()))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Start processes of which none is left afterwards, whatever happens."""
    with Started(str(tmp_path)) as processes:
        yield processes


PROCESSES = {"pool", "pair", "ranks", "eight", "started"}
"""Fixtures that start processes; `ranks` of tests/runtime are processes or not, as its parameter says."""
SECONDS = {"torchrun": 8.0, "slow": 1.0}
"""About what a test with such a mark takes; all others are quick. Of its cases one is for every change, the others are
for the night; of a quick test all are for every change."""
MINUTES, MINUTES_S = ("test_real_slurm.py", "test_could_differ.py", "test_figures.py"), 200.0
"""Files of which a single test takes minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[tuple[Any, ...], list[pytest.Item]] = {}
    for item in items:
        on = item.callspec.params.get("ranks") if hasattr(item, "callspec") else None
        kind = "real" if on == "gloo" else "quick"
        if on is None and PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            kind = "processes"
        elif item.get_closest_marker("torchrun"):
            kind = "torchrun"
        elif on == "virtual" or item.get_closest_marker("slow"):
            kind = "slow"
        script = item.callspec.params.get("script") if hasattr(item, "callspec") else None  # of tests/runtime/habit.py
        name = getattr(item, "originalname", item.name)
        cases.setdefault((item.path, item.cls, script, name, kind), []).append(item)
    for (*_, kind), alike in cases.items():
        alike.sort(key=lambda item: zlib.crc32(item.name.encode()))  # an order that mixes what products vary
        for item in alike[1:] if kind != "quick" else []:
            item.add_marker(pytest.mark.nightly)
        for item in alike if kind == "real" else []:  # the one on virtual ranks takes part of a second
            item.add_marker(pytest.mark.slow)
    file_s: Counter[Path] = Counter({path: MINUTES_S for path in {item.path for item in items} if path.name in MINUTES})
    for item in items:
        file_s[item.path] += next((s for mark, s in SECONDS.items() if item.get_closest_marker(mark)), 0.05)
    items.sort(key=lambda item: -file_s[item.path])
