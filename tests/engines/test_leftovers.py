"""What is left of a launch that was ended, several times or by force: nothing that a reader could stumble over."""

import os
import signal
import subprocess
import sys

import pytest
from engines.helpers import HERE, make_case
from processes import HANG_S, wait_until

from ssfx.core.errors import RunError
from ssfx.lab.engines.launch import TEMPORARY
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results import step_logs
from ssfx.lab.results.store import Store

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]
MAIN = "import sys; from ssfx.cli import main; sys.exit(main())"


def temporary(store) -> list[str]:
    """Return what is below the results that belongs to processes which have ended."""
    return [str(path) for path in store.runs.rglob("*") if path.name == TEMPORARY or path.name.endswith(".tmp")]


@pytest.mark.nightly
@pytest.mark.parametrize("first", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_who_is_asked_to_end_several_times_ends_as_the_first_time_asked_and_leaves_nothing(started, tmp_path, first):
    words = ["run", "scheme=ddp", "cluster=local", "world_size=2", "steps=100000"]
    launcher = started.start(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "SSFX_RESULTS": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def trains() -> bool:
        assert launcher.poll() is None, launcher.stderr.read()
        return any(path.stat().st_size for path in tmp_path.glob("runs/*/attempt-1/rank0.jsonl"))

    wait_until(trains)
    launcher.send_signal(first)
    if first == signal.SIGTERM:  # of two that come at once Python sees Ctrl-C first; ranks that are ended leave stacks
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.glob("runs/*/attempt-1/stacks-rank*.txt")))

    def ends() -> bool:
        launcher.send_signal(signal.SIGINT)
        return launcher.poll() is not None

    wait_until(ends)
    said = launcher.communicate(timeout=HANG_S)[1]
    assert launcher.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[first], said
    last = [line for line in said.splitlines() if line.startswith("ssfx:")]
    assert [("interrupted" in line, "ended by SIGTERM" in line) for line in last] == [
        (first == signal.SIGINT, first == signal.SIGTERM)
    ]
    assert "Traceback" not in said
    assert started.left() == []
    assert temporary(Store(tmp_path)) == []
    assert len(list(tmp_path.glob(f"runs/*/attempt-1/{step_logs.NAME}"))) == 1


@pytest.mark.nightly
def test_what_a_launcher_leaves_that_was_killed_is_put_away_by_the_next_attempt(store, started, tmp_path):
    case, hold = make_case(), tmp_path / "go on"
    command = [sys.executable, str(HERE / "drive.py"), str(store.runs.parent), case.to_json()]
    launcher = started.start(command, env={**os.environ, "FAKE_HOLD": str(hold)}, stderr=subprocess.DEVNULL)
    folder = store.run_dir(case) / "attempt-1"
    wait_until(lambda: all((folder / f"rank{rank}.jsonl").is_file() for rank in (0, 1)))
    launcher.kill()
    launcher.wait(HANG_S)
    wait_until(lambda: not started.left())
    assert temporary(store)
    (folder / ".failure-rank0.json.17.tmp").write_text("{")  # a rank that was killed while it wrote leaves it
    (store.run_dir(case) / ".row.json.17.tmp").write_text("{")
    Torchrun(train="fake_train:train").run([case], store, progress=False)
    assert temporary(store) == []
    assert [(store.run_dir(case) / f"attempt-{number}" / step_logs.NAME).exists() for number in (1, 2)] == [True] * 2


@pytest.mark.nightly
def test_a_rank_that_is_killed_while_it_writes_leaves_no_half_file(store):
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL"):
        Torchrun(train="fake_train:killed_while_it_writes").run([make_case()], store, progress=False)
    assert temporary(store) == []
