"""`make` and the CI script: clear when Python is too old, and red when any step fails. Nothing is installed here."""

import os
import shutil
import subprocess

import pytest
from docs.markdown import ROOT


def make(*words, **environment):
    command = ["make", "--no-print-directory", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_make_alone_lists_every_target():
    listed = make().stdout
    for target in ("figures", "demo", "test", "test-all", "test-fast", "lint", "reference", "clean"):
        assert f"make {target} " in listed


@pytest.mark.parametrize("python", ["", "false"])
def test_without_a_recent_python_one_line_says_what_is_needed(tmp_path, python):
    done = make("install", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert "ssfx needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("failing", "called"), [("none", ["lint", "test"]), ("lint", ["lint"]), ("test", ["lint", "test"])]
)
def test_ci_runs_lint_then_the_tests_in_a_new_environment_and_fails_with_them(tmp_path, failing, called):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    stub = tmp_path / "bin" / "make"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$1 $VENV" >> calls\ntest -d "$VENV" && test "$1" != {failing}\n')
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}", "OLDEST": ""}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL)
    assert (done.returncode == 0) == (failing == "none")
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [target for target, _ in calls] == called
    assert {venv.startswith(".ci/venv.") for _, venv in calls} == {True}
    assert [path.name for path in (tmp_path / ".ci").iterdir()] == ["run"]
