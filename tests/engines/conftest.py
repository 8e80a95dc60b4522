import pytest
from engines.helpers import fake_launches

from ssfx.lab.results.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch, started):
    """A store for launches with the fake training function; afterwards no process of theirs may be left."""
    fake_launches(monkeypatch)
    yield Store(tmp_path)
    assert started.left() == []
