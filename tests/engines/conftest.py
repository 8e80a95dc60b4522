from __future__ import annotations

import os

import pytest
from engines.helpers import HERE, processes_of

from ssfx.results.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store for launches with the fake training function; afterwards no process of theirs may be left."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])))
    yield Store(tmp_path)
    assert processes_of(tmp_path) == []
