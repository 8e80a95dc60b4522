"""A results folder that others may write to, too: what they lay there as a link is never written or read through."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from results.test_store import make_row

from ssfx.cli import main
from ssfx.core.errors import RunError
from ssfx.core.files import created, replacing, write_atomic, write_json
from ssfx.lab.engines.launch import TEMPORARY, Launch, put_in_order
from ssfx.lab.engines.simulate import _keep
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import RunLock, Store
from ssfx.lab.worker.heartbeat import Heartbeat
from ssfx.lab.worker.rank import RankRun
from ssfx.lab.workloads.checkpoint import Checkpoints
from ssfx.runtime.stats import Tracer

SECRET = "what is somebody's own\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "victim"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def laid(victim: Path, *places: Path) -> None:
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(victim)


def temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def unharmed(victim: Path) -> bool:
    return victim.read_text() == SECRET and list(victim.parent.iterdir()) == [victim]


WRITES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "text": ("row.json", lambda path: write_atomic(path, "new")),
    "json": ("row.json", lambda path: write_json(path, "{}")),
    "heartbeat": ("rank0.state", lambda path: Heartbeat(path.parent, 0)),
    "trace": ("trace-rank0.json", lambda path: Tracer(True, 0).save(path)),
    "checkpoint": ("step-1/rank0.pt", lambda path: Checkpoints(path.parents[1], {}).save(1, {"a": torch.ones(3)})),
    "seal": ("step-1/COMPLETE", lambda path: Checkpoints(path.parents[1], {}).save(1, {"a": torch.ones(3)})),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_takes_the_place_of_a_link_and_leaves_alone_what_the_link_names(tmp_path, victim, name):
    at, write = WRITES[name]
    path = tmp_path / "runs" / at
    laid(victim, path, temporary(path))
    write(path)
    assert path.is_file()
    assert not path.is_symlink()
    assert not temporary(path).is_symlink()
    assert unharmed(victim)


def test_a_link_that_is_laid_while_a_file_is_written_is_not_followed(tmp_path, victim, monkeypatch):
    path = tmp_path / "runs" / "row.json"
    path.parent.mkdir()
    real = Path.unlink

    def again(self: Path, missing_ok: bool = False) -> None:
        real(self, missing_ok=missing_ok)
        if not self.is_symlink():
            self.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", again)
    with pytest.raises(FileExistsError), replacing(path) as file:
        file.write("new")
    assert unharmed(victim)


def test_logs_are_not_written_through_links(tmp_path, victim):
    path = tmp_path / "attempt-1" / "rank0.jsonl"
    laid(victim, path)
    with pytest.raises(OSError, match="symbolic link"):
        created(path)
    assert unharmed(victim)


def test_a_claim_is_not_taken_through_a_link(tmp_path, victim, monkeypatch, capsys):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    row = make_row()
    store = Store(tmp_path)
    lock = store.run_dir(row.case) / "lock"
    for target in (victim, victim.with_name("not there")):
        lock.unlink(missing_ok=True)
        laid(target, lock)
        with pytest.raises(OSError, match="symbolic link"):
            RunLock.take(lock.parent)
    assert unharmed(victim)
    with pytest.raises(RunError, match="symbolic link"):
        Torchrun().run([row.case], store, progress=False)
    write_json(lock.parent / "case.json", row.case.to_json())
    assert main(["status", "--watch"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"ssfx: {lock}: it is a symbolic link")


def _simulated(path: Path) -> None:
    """Keep a simulated run, whose attempt is at `path`."""
    row = make_row()
    _keep(row, _Step(), Store(path.parents[2]))  # type: ignore[arg-type]


class _Step:
    """As much of a simulated step as is kept of one."""

    class plan:
        to_json = staticmethod(lambda: "{}")


FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "run, claimed": ("", lambda path: RunLock.take(path)),
    "run, finished": ("", lambda path: Store(path.parents[1]).save(make_row())),
    "run, simulated": ("", lambda path: _simulated(path / "attempt-1")),
    "attempt, simulated": ("attempt-1", _simulated),
    "attempt of a rank": ("attempt-1", lambda path: RankRun({"run_dir": str(path.parent), "attempt": 1}, 0)),
    "attempt to stop": ("attempt-1", lambda path: Launch._ask_to_stop(None, _Job(path))),  # type: ignore[arg-type]
    "checkpoints": ("checkpoint", lambda path: Checkpoints(path, {}).save(1, {"a": torch.ones(3)})),
    "checkpoint": ("checkpoint/step-1", lambda path: Checkpoints(path.parent, {}).save(1, {"a": torch.ones(3)})),
}


class _Job:
    def __init__(self, attempt_dir: Path) -> None:
        self.attempt_dir = attempt_dir


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_link_is_refused_and_nothing_is_written_there(tmp_path, victim, name):
    at, write = FOLDERS[name]
    path = tmp_path / "runs" / make_row().run_id / at
    (victim.parent / "rank0.pt").write_text(SECRET)
    laid(victim.parent, path)
    with pytest.raises((OSError, RunError), match=r"symbolic link"):
        write(path)
    assert {one.name: one.read_text() for one in victim.parent.iterdir()} == {"victim": SECRET, "rank0.pt": SECRET}


def test_what_an_attempt_elsewhere_left_is_not_put_away(tmp_path, victim):
    kept = victim.parent / TEMPORARY / "kept"
    kept.parent.mkdir()
    kept.write_text(SECRET)
    (victim.parent / "kept.tmp").write_text(SECRET)
    laid(victim.parent, tmp_path / "run" / "attempt-1")
    put_in_order(tmp_path / "run")
    assert kept.exists()
    assert (victim.parent / "kept.tmp").exists()


def test_a_row_is_not_read_through_a_link(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    store, row = Store(tmp_path), make_row()
    store.save(row)
    path = store.run_dir(row.case) / "row.json"
    path.rename(tmp_path / "moved.json")
    path.symlink_to(tmp_path / "moved.json")
    with pytest.raises(RunError, match=r"row\.json is a symbolic link"):
        store.row(row.case)
    assert main(["status"]) == 1
    assert "is a symbolic link" in capsys.readouterr().err
    store.save(row)
    assert store.row(row.case) == row
