from __future__ import annotations

import builtins
import io
import json
import os
import pickle
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import loads
from ssfx.lab.workloads.checkpoint import Checkpoints, read_state

IDENTITY = {"run": "abc", "data": "def"}


def _checkpoints(folder: Path, **changes: Any) -> Checkpoints:
    return Checkpoints(folder, IDENTITY | changes)


def _state(step: int) -> dict[str, Any]:
    return {"tensor": torch.full((3,), float(step)), "counters": {"step": step}}


def _assert_loads(folder: Path, step: int) -> tuple[str, ...]:
    loaded = _checkpoints(folder).load()
    assert loaded.step == step
    assert loaded.state is not None
    assert loaded.state["counters"] == {"step": step}
    assert torch.equal(loaded.state["tensor"], _state(step)["tensor"])
    return loaded.skipped


def test_nothing_to_load(tmp_path: Path) -> None:
    loaded = _checkpoints(tmp_path / "none").load()
    assert (loaded.step, loaded.state, loaded.skipped) == (0, None, ())


def test_the_newest_loads_and_the_last_two_stay(tmp_path: Path) -> None:
    for step in (5, 10, 15, 100):
        _checkpoints(tmp_path).save(step, _state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100", "step-15"]
    assert sorted(path.name for path in (tmp_path / "step-15").iterdir()) == ["COMPLETE", "rank0.pt"]
    assert _assert_loads(tmp_path, 100) == ()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "COMPLETE").unlink(), "COMPLETE is missing"),
        (lambda folder: (folder / "rank0.pt").unlink(), "rank0.pt is missing"),
        (lambda folder: (folder / "rank0.pt").write_bytes(b"torn"), "checksum of rank0.pt does not match"),
        (lambda folder: (folder / "COMPLETE").write_text("{"), "Expecting"),
        (lambda folder: (folder / "COMPLETE").write_text("{}"), "world_size"),
        (lambda folder: _reseal(folder, sha256=[]), "not the digests of so many files"),
        (lambda folder: _reseal(folder, sha256={}), "not the digests of so many files"),
        (lambda folder: _reseal(folder, sha256=["0" * 64] * 2), "not the digests of so many files"),
        (lambda folder: _reseal(folder, sha256=[], world_size=0), "not the digests of so many files"),
        (lambda folder: _reseal(folder, sha256="x"), "not the digests of so many files"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_named(
    tmp_path: Path, damage: Callable[[Path], Any], said: str
) -> None:
    for step in (1, 2):
        _checkpoints(tmp_path).save(step, _state(step))
    damage(tmp_path / "step-2")
    (note,) = _assert_loads(tmp_path, 1)
    assert note.startswith("checkpoint step-2 skipped")
    assert said in note


def _reseal(folder: Path, **changes: Any) -> None:
    seal = {**loads((folder / "COMPLETE").read_text()), **changes}
    (folder / "COMPLETE").write_text(json.dumps(seal))


@pytest.mark.parametrize("name", ["step-²", "step-", "step-x", "step-03", "step-٣", "step--1", "step-3.tmp"])
def test_folders_that_only_look_like_checkpoints_are_none(tmp_path: Path, name: str) -> None:
    _checkpoints(tmp_path).save(1, _state(1))
    shutil.copytree(tmp_path / "step-1", tmp_path / name)
    assert _assert_loads(tmp_path, 1) == ()
    _checkpoints(tmp_path).save(2, _state(2))
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "content", [b"", b"torn", b"PK\x03\x04" + bytes(50), pickle.dumps([1])], ids=["empty", "text", "zip", "pickle"]
)
def test_a_file_that_is_no_state_is_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank0.pt"
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        read_state(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_state_that_would_run_code_does_not(tmp_path: Path) -> None:
    path, victim = tmp_path / "rank0.pt", tmp_path / "victim"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (victim,))

    torch.save({"a": Hostile()}, path)
    with pytest.raises(RunError, match="damaged, or no state that ssfx saved"):
        read_state(path)
    torch.save([1], path)
    with pytest.raises(RunError, match="but list"):
        read_state(path)
    assert not victim.exists()


def test_another_world_size_is_refused(tmp_path: Path) -> None:
    _checkpoints(tmp_path).save(1, _state(1))
    with pytest.raises(ConfigError, match=r"written by 1 ranks.*2 ranks cannot resume.*use world_size=1"):
        Checkpoints(tmp_path, IDENTITY, rank=0, world_size=2).load()


def test_another_data_set_is_refused(tmp_path: Path) -> None:
    _checkpoints(tmp_path).save(1, _state(1))
    with pytest.raises(ConfigError, match="belongs to data def, this run has xyz"):
        _checkpoints(tmp_path, data="xyz").load()


def test_a_full_disk_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _checkpoints(tmp_path).save(1, _state(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"step-2 cannot be written: rank 0: No space left on device, .* needed"):
        _checkpoints(tmp_path).save(2, _state(2))
    monkeypatch.undo()
    _assert_loads(tmp_path, 1)


def test_a_write_that_fails_inside_torch_is_named_and_leaves_no_part(tmp_path: Path) -> None:
    checkpoints = _checkpoints(tmp_path)
    checkpoints.save(1, _state(1))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, usual[1]))
    try:
        with pytest.raises(RunError, match=r"step-2 cannot be written: rank 0: File too large"):
            checkpoints.save(2, {"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not list(tmp_path.rglob("*.tmp"))
    _assert_loads(tmp_path, 1)


class Counted:
    """A file whose every write and flush is a file operation; of the write that is not allowed, half is done."""

    def __init__(self, file: Any, killer: Killer) -> None:
        self._file = file
        self._killer = killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        if not self._killer.allows():
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            self._killer.kill()
        return int(self._file.write(data))

    def flush(self) -> None:
        if not self._killer.allows():
            self._killer.kill()
        self._file.flush()


class Killer:
    """Lets this process do `allowed` file operations; SIGKILL takes the place of the next one."""

    operations = ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "open", "scandir")

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def allows(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        for name in self.operations:
            setattr(os, name, self._wrap(getattr(os, name)))
        opened = self._wrap(io.open)

        def counted(*arguments: Any, **options: Any) -> Any:
            return Counted(opened(*arguments, **options), self)

        io.open = builtins.open = counted  # type: ignore[assignment]

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not self.allows():
                self.kill()
            return original(*arguments, **options)

        return call


def test_sigkill_at_any_file_operation_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    for step in (1, 2):
        _checkpoints(ready).save(step, _state(step))
    allowed, outcomes = 0, []
    while True:
        folder = tmp_path / f"run-{allowed}"
        shutil.copytree(ready, folder)
        child = os.fork()
        if not child:
            try:
                Killer(allowed).watch()
                _checkpoints(folder).save(3, _state(3))
            except BaseException:
                os._exit(1)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        loaded = _checkpoints(folder).load()
        assert loaded.step in (2, 3)
        _assert_loads(folder, loaded.step)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        outcomes.append(loaded.step)
        _checkpoints(folder).save(3, _state(3))  # the next attempt gets past it
        _assert_loads(folder, 3)
        allowed += 1
    assert allowed > 20
    assert outcomes == sorted(outcomes)  # complete from one operation on, never before
    assert {2, 3} == set(outcomes)


def test_the_seal_holds_a_checksum_for_every_rank(tmp_path: Path) -> None:
    _checkpoints(tmp_path).save(1, _state(1))
    seal = json.loads((tmp_path / "step-1" / "COMPLETE").read_text())
    assert seal["identity"] == IDENTITY
    assert [len(digest) for digest in seal["sha256"]] == [64]
