"""Folders that cannot be written to: one line with the folder and a way out, before anything is drawn or measured."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ssfx.cli import main
from ssfx.core.files import write_atomic

BUILD = """
import torch

def build():
    return torch.nn.Linear(3, 2), torch.ones(4, 3)
"""


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was measured or drawn: nothing may be, because it could not be kept."""
    done: list[object] = []
    for name in (
        "ssfx.lab.calibration.calibrate_cluster.run_ranks",
        "ssfx.lab.workloads.profiling.record_profile",
        "ssfx.lab.workloads.own_batch.timed_batch",
        "ssfx.lab.workloads.own_batch.counted_batch",
        "experiments.common.figures.drawing._draw",
    ):
        monkeypatch.setattr(name, lambda *_, **__: done.append(1))
    return done


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ssfx: cannot write to ")
    return line


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "results"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "ssfx-test", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no read-only folder was tried: there is no command mount here")
    if done.returncode:
        pytest.skip(f"no read-only folder was tried: mounting one needs root ({done.stderr.decode().strip()})")
    monkeypatch.setenv("SSFX_RESULTS", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["figures", "ssfusion.fig16"],
        ["profile", "compressors", "ranks=2"],
        ["profile", "network", "cluster=local", "world_size=2"],
        ["profile", "model=resnet_tiny"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_of_a_read_only_results_folder_a_command_says_so_at_once(read_only, measures, capsys, words):
    line = refused(words, capsys)
    assert "Read-only file system" in line
    assert str(read_only) in line
    assert "SSFX_RESULTS" in line or "--out" in line
    assert measures == []


@pytest.mark.parametrize("where", ["a file", "inside a file", "/proc/x", "/dev/null"])
@pytest.mark.parametrize("verb", ["figures", "report", "profile model=resnet_tiny", "profile own.py:build"])
def test_what_cannot_be_a_folder_is_refused_in_a_line(tmp_path, monkeypatch, measures, capsys, verb, where):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    (tmp_path / "own.py").write_text(BUILD)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    folder = {"a file": tmp_path / "file", "inside a file": tmp_path / "file" / "x"}.get(where, Path(where))
    out = folder if verb == "figures" else folder / "it.json"
    words = verb.split()
    line = refused([*words, *(["ssfusion.fig16"] if verb == "figures" else []), "--out", str(out)], capsys)
    assert str(folder) in line
    assert "--out" in line
    assert measures == []
    assert (tmp_path / "file").read_text() == "kept"


def test_an_error_of_a_file_is_a_line_whatever_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    out = tmp_path / "folder"
    out.mkdir()
    monkeypatch.setattr(
        "experiments.common.cli.report.report", click.command("report")(lambda: write_atomic(out, "page"))
    )
    assert main(["report"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"ssfx: {out}: Is a directory"
    assert list(tmp_path.rglob("*")) == [out]
