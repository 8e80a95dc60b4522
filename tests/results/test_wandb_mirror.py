"""The W&B mirror: it copies, and its failures are warnings."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from results.test_store import make_row

from ssfx.core.errors import ConfigError
from ssfx.results.wandb_mirror import mirror


class FakeRun:
    def __init__(self) -> None:
        self.summary: dict = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the wandb package that remembers what it was given."""
    module = ModuleType("wandb")
    module.run, module.given = FakeRun(), {}

    def init(**given):
        module.given = given
        return module.run

    module.init, module.Settings = init, lambda **settings: SimpleNamespace(**settings)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_row_is_mirrored_under_its_run_id(wandb):
    row = make_row(top1=None)
    assert mirror(row, "offline")
    assert wandb.given["id"] == row.run_id
    assert wandb.given["mode"] == "offline"
    assert wandb.given["config"]["scheme"] == "ddp"
    assert wandb.run.summary == {"iteration_s": 0.5, "origin": "measured"}


def test_off_does_nothing(wandb):
    assert not mirror(make_row(), "off")
    assert wandb.given == {}


def test_a_failure_is_a_warning(wandb):
    def init(**_):
        raise RuntimeError("no network")

    wandb.init = init
    with pytest.warns(UserWarning, match="failed: RuntimeError: no network"):
        assert not mirror(make_row(), "online")


def test_wandb_may_be_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="ImportError|ModuleNotFoundError"):
        assert not mirror(make_row(), "offline")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'offline'"):
        mirror(make_row(), "offlin")
