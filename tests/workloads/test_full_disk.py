"""A disk that is really full: a tmpfs of 4 MB. What does not fit is named, nothing is left of it, and work goes on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from refusals import output
from results.test_store import make_row
from workloads import work

from ssfx.cli import main
from ssfx.core.errors import RunError
from ssfx.core.files import free_bytes
from ssfx.lab.results.store import Store
from ssfx.lab.workloads.checkpoint import Checkpoints

SIZE_BYTES = 4 * 2**20
RUN = [
    "run",
    "engine=simulate",
    "experiment=throughput",
    "cluster=64gpu",
    "workload=resnet152_imagenet",
    "scheme=ddp,wfbp",
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "ssfx-test", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no full disk was tried: there is no command mount here")
    if done.returncode:
        pytest.skip(f"no full disk was tried: mounting one needs root ({done.stderr.strip()})")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, left_bytes: int) -> Path:
    """Leave so much room on the disk, to a page; the returned file takes the rest."""
    path = disk / "others"
    path.write_bytes(bytes(max(0, free_bytes(disk) - left_bytes)))
    return path


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_that_does_not_fit_is_refused_before_a_byte_is_written(disk):
    checkpoints = Checkpoints(disk / "checkpoint", {"run": "abc"})
    checkpoints.save(2, {"weights": torch.zeros(100_000)})
    others = fill(disk, 200_000)
    before = files(disk)
    with pytest.raises(RunError, match=r"step-4 needs 0\.4\d* MB and there are 0\.19\d MB free") as caught:
        checkpoints.save(4, {"weights": torch.ones(100_000)})
    assert str(disk / "checkpoint" / "step-4") in str(caught.value)
    assert str(caught.value).endswith("the run resumes from the checkpoint of step 2, which is still there")
    assert files(disk) == before
    assert checkpoints.load().step == 2
    others.unlink()
    checkpoints.save(4, {"weights": torch.ones(100_000)})
    assert checkpoints.load().step == 4


@pytest.mark.parametrize("free", [free_bytes, lambda path: SIZE_BYTES], ids=["known before", "only while writing"])
def test_the_first_checkpoint_that_does_not_fit_names_no_earlier_one(disk, monkeypatch, free):
    fill(disk, 200_000)
    monkeypatch.setattr("ssfx.lab.workloads.checkpoint.free_bytes", free)
    with pytest.raises(RunError, match=r"there is no earlier checkpoint, so the run starts again at step 0$"):
        Checkpoints(disk / "checkpoint", {"run": "abc"}).save(4, {"weights": torch.ones(100_000)})


def test_a_disk_that_fills_up_meanwhile_is_named_and_nothing_is_left_of_the_checkpoint(disk, monkeypatch):
    checkpoints = Checkpoints(disk / "checkpoint", {"run": "abc"})
    checkpoints.save(2, {"weights": torch.zeros(100_000)})
    fill(disk, 200_000)
    before = files(disk)
    monkeypatch.setattr("ssfx.lab.workloads.checkpoint.free_bytes", lambda path: SIZE_BYTES)  # what it was a moment ago
    with pytest.raises(RunError, match=r"step-4 cannot be written: rank 0: No space left on device, 0\.4\d* MB needed"):
        checkpoints.save(4, {"weights": torch.ones(100_000)})
    assert files(disk) == before
    assert checkpoints.load().step == 2


def test_ranks_that_do_not_fit_together_all_say_so(disk, pair):
    fill(disk, 600_000)
    said = pair.run(work.save_on_all_ranks, 2, str(disk / "checkpoint"), 100_000)
    assert len(set(said)) == 1
    assert "needs 0.8" in said[0]
    assert not files(disk / "checkpoint")


def test_one_rank_without_room_ends_the_checkpoint_of_all(disk, tmp_path, pair):
    fill(disk, 100_000)
    said = pair.run(work.save_on_all_ranks, 2, str(tmp_path / "roomy"), 100_000, str(disk / "checkpoint"))
    assert ["rank 1: No space left on device" in text for text in said] == [True, True]
    assert not list(tmp_path.glob("*/*/step-*/*"))
    assert not list(tmp_path.glob("*/step-*/*"))


@pytest.mark.nightly
def test_rows_and_figures_on_a_full_disk_are_named_and_the_same_command_goes_on(disk, monkeypatch, capsys):
    monkeypatch.setenv("SSFX_RESULTS", str(disk))
    others = fill(disk, 8_000)
    assert main(RUN) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert str(disk) in line
    assert "No space left on device" in line
    assert "free" in line
    assert not [path for path in files(disk) if path.name.endswith(".tmp")]

    others.unlink()
    others = fill(disk, 150_000)  # enough for rows, not for figures
    main(RUN)
    said = capsys.readouterr()
    assert "2 runs, 0 finished" in said.out or "2 runs, 1 finished" in said.out
    assert "cannot draw [Errno 28] No space left on device" in said.err
    assert main(["figures", "ssfusion.fig11"]) == 1
    assert len(Store(disk).rows()) == 2
    assert not [path for path in files(disk) if path.suffix in (".tmp", ".png")]

    others.unlink()
    assert "2 runs, 2 finished, 0 to do" in output(capsys, *RUN)
    assert list((disk / "figures").glob("*.png"))


def test_a_row_that_does_not_fit_leaves_its_run_unfinished(disk):
    store = Store(disk)
    row = make_row()
    store.run_dir(row.case).mkdir(parents=True)
    others = fill(disk, 0)
    with pytest.raises(OSError, match=r"No space left on device, .* needed and 0 MB free.*row\.json"):
        store.save(row)
    assert store.status(row.case) == "new"
    others.unlink()
    store.save(row)
    assert store.rows() == [row]
