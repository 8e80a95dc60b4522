import pytest

from ssfx.core import machine


@pytest.fixture
def two_cores(monkeypatch):
    """A machine without GPUs."""
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setattr(machine, "cores", lambda: 2)
