"""What holds for every test: torch, once a test module has imported it, uses one thread, as ranks do."""

import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
