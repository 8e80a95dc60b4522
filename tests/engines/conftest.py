from __future__ import annotations

import os

import pytest
from engines.helpers import HERE

from ssfx.results.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch, started):
    """A store for launches with the fake training function; afterwards no process of theirs may be left.

    torchrun gets as long as it needs to notice a failure, which on a busy machine is longer than a user would wait.
    """
    monkeypatch.setattr("ssfx.engines.launch.GRACE_S", 60.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])))
    yield Store(tmp_path)
    assert started.left() == []
