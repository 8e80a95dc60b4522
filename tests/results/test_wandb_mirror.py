"""The W&B mirror: it copies, and its failures are warnings."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from results.test_store import make_row

from ssfx.lab.results.wandb_mirror import Mirror, mirror


class FakeRun:
    def __init__(self) -> None:
        self.summary: dict = {}
        self.logged: list = []
        self.artifacts: list = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def log(self, values, step):
        self.logged.append((step, values))

    def log_artifact(self, artifact):
        self.artifacts.append(artifact)


class FakeArtifact:
    def __init__(self, name, type, metadata):
        self.name, self.files = name, []

    def add_file(self, path):
        self.files.append(path)


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the wandb package that keeps what it was given."""
    module = ModuleType("wandb")
    module.run, module.given, module.Artifact = FakeRun(), {}, FakeArtifact

    def init(**given):
        module.given = given
        return module.run

    module.init, module.Settings = init, lambda **settings: SimpleNamespace(**settings)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_row_is_mirrored_under_its_run_id(wandb, tmp_path):
    row = make_row(top1=None)
    assert mirror(row, Mirror("offline", tmp_path / "wandb", "mine", ("first",)))
    assert wandb.given["id"] == row.run_id
    assert wandb.given["mode"] == "offline"
    assert (wandb.given["project"], wandb.given["tags"]) == ("mine", ["first", "measured"])
    assert wandb.given["dir"] == str(tmp_path / "wandb")
    assert wandb.given["config"]["scheme"] == "ddp"
    assert wandb.run.summary == {"iteration_s": 0.5, "origin": "measured"}
    assert wandb.run.logged == []
    assert wandb.run.artifacts == []


def test_the_curve_is_logged_step_by_step(wandb, tmp_path):
    row = replace(make_row(), curve={"step": [10, 20], "top1": [0.5, 0.75], "threshold": [None, 0.25]})
    assert mirror(row, Mirror("offline", tmp_path))
    assert wandb.run.logged == [(10, {"top1": 0.5}), (20, {"top1": 0.75, "threshold": 0.25})]


def test_files_that_exist_are_one_artifact(wandb, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    row = make_row()
    assert mirror(row, Mirror("offline", tmp_path), [plan, tmp_path / "trace.json"])
    (artifact,) = wandb.run.artifacts
    assert artifact.name == f"run-{row.run_id}"
    assert artifact.files == [str(plan)]


def test_off_does_nothing(wandb, tmp_path):
    assert not mirror(make_row(), Mirror("off", tmp_path / "wandb"))
    assert wandb.given == {}
    assert not (tmp_path / "wandb").exists()


def test_a_failure_is_a_warning(wandb, tmp_path):
    def init(**_):
        raise RuntimeError("no network")

    wandb.init = init
    with pytest.warns(UserWarning, match="failed: RuntimeError: no network"):
        assert not mirror(make_row(), Mirror("online", tmp_path))


def test_wandb_may_be_absent(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="ImportError|ModuleNotFoundError"):
        assert not mirror(make_row(), Mirror("offline", tmp_path))
