"""What a row says about how it was obtained."""

import subprocess
from pathlib import Path

import ssfx
from ssfx.lab.results import manifest


def test_code_names_the_commit_of_a_checkout_and_nothing_outside_one(tmp_path, monkeypatch):
    package = tmp_path / "ssfx"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(ssfx, "__file__", str(package / "__init__.py"))
    assert manifest.code() == {"version": ssfx.__version__, "commit": None, "dirty": None}

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init")
    git("add", "ssfx")
    git("commit", "-m", "x")
    found = manifest.code()
    assert len(found["commit"]) == 40
    assert found["dirty"] is False
    (tmp_path / "notes.txt").write_text("cannot change a run")
    assert manifest.code()["dirty"] is False
    (package / "new.py").write_text("can")
    assert manifest.code()["dirty"] is True


def test_git_may_be_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    if (Path(ssfx.__file__).parent.parent / ".git").exists():
        assert manifest.code()["commit"] is None


def test_hardware_and_versions_are_there():
    machine = manifest.hardware()
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > 2**28
    assert set(manifest.versions()) >= {"python", "system", "torch", "numpy"}
    assert manifest.describe(machine).endswith("cores")
    assert manifest.describe({**machine, "gpus": ["NVIDIA X", "NVIDIA X"]}).startswith("2 x NVIDIA X, ")


def test_busy_time_grows():
    before = manifest.busy_s()
    sum(i * i for i in range(2_000_000))
    assert manifest.busy_s() > before > 0
