"""Step logs of real attempts: any change of a file is found, whatever is left of it."""

import shutil
from collections.abc import Callable

import pytest
from engines.helpers import fake_launches, make_case

from ssfx.core.errors import RunError
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store
from ssfx.lab.workloads.record import records_in

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "emptied": lambda lines: [],
    "cut after a line": lambda lines: lines[:3],
    "cut in a line": lambda lines: [b"".join(lines)[:300]],
    "without its end": lambda lines: [b"".join(lines)[:-1]],
    "a line left out": lambda lines: lines[:2] + lines[3:],
    "reordered": lambda lines: [lines[1], lines[0], *lines[2:]],
    "doubled": lambda lines: [*lines, lines[-1]],
    "all of it twice": lambda lines: lines * 2,
    "another number": lambda lines: [lines[0].replace(b'"iteration_s":0.5', b'"iteration_s":0.6'), *lines[1:]],
    "another step": lambda lines: [*lines[:-1], lines[-1].replace(b'"step":5', b'"step":6')],
    "a blank line": lambda lines: [*lines, b"\n"],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder of a run that was finished at its second attempt, and of one that failed."""
    folder = tmp_path_factory.mktemp("recorded")
    cases = [make_case(seed=seed) for seed in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        fake_launches(patch)
        for case in cases:
            patch.setenv("SSFX_FAULT", f"raise:rank=1,step=4,phase=exchange,run={case.run_id}")
            with pytest.raises(RunError, match="InjectedFault"):
                Torchrun(train="fake_train:train").run([case], Store(folder), progress=False)
        Torchrun(train="fake_train:train").run(cases[:1], Store(folder), progress=False)
    return folder


@pytest.fixture
def runs(recorded, tmp_path):
    """Return step logs of a copy of these runs."""
    shutil.copytree(recorded, tmp_path / "results")
    return sorted((tmp_path / "results").glob("runs/*/attempt-*/rank*.jsonl"))


@pytest.mark.nightly
def test_every_change_of_a_step_log_is_found(runs):
    assert len(runs) == 6
    for path in runs:
        assert records_in(path, torn=False)
    for path in (runs[0], runs[-1]):  # of a finished attempt, and of a failed one
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        for change in CHANGES.values():
            changed = b"".join(change(lines))
            if changed == whole:  # a failed attempt has no sixth step
                continue
            path.write_bytes(changed)
            with pytest.raises(RunError, match=path.name):
                records_in(path, torn=True)
        path.unlink()
        with pytest.raises(RunError, match=path.name):
            records_in(path, torn=True)
        path.write_bytes(whole)
