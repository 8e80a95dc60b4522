"""Cases that run at the same time share no core and no GPU; who goes on while others wait, and who ends with them."""

import os
import sys

import pytest
from engines.helpers import make_case
from processes import finished

from ssfx.core import machine
from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines.places import Place, check_room, places
from ssfx.lab.engines.torchrun import Torchrun, _alternate
from ssfx.lab.results.store import Store


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(machine, "own_cores", lambda: list(range(8)))


def test_places_share_neither_cores_nor_gpus(eight_cores, monkeypatch):
    assert places(make_case(), 1) == [Place()]
    for jobs in (2, 3, 4):
        cores = [core for place in places(make_case(), jobs) for core in place.cores]
        assert sorted(cores) == list(range(8))
    monkeypatch.setattr(machine, "gpus", lambda: ("H100",) * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    first, second = places(make_case(device="cuda"), 2)
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert second.environment == {"CUDA_VISIBLE_DEVICES": "6,7"}
    assert not set(first.cores) & set(second.cores)


def test_where_there_is_no_room_the_number_that_fits_is_named(eight_cores, monkeypatch):
    with pytest.raises(ConfigError, match=r"jobs=3 cases of 4 ranks with 1 thread\(s\) each need 12 .* use jobs=2$"):
        check_room([make_case(), make_case(world_size=4)], 3)
    with pytest.raises(ConfigError, match=r"4 thread\(s\) each need 16 cores, and 8 are here; use jobs=1$"):
        check_room([make_case(threads=4)], 2)
    monkeypatch.setattr(machine, "visible_gpus", lambda: ("0", "1", "2"))
    with pytest.raises(ConfigError, match=r"jobs=2 cases of 2 ranks need 4 GPUs, and 3 are here; use jobs=1$"):
        check_room([make_case(device="cuda")], 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("scheme=ddp jobs=50", "jobs=50 cases of 2 ranks"),
        ("scheme=ddp jobs=0", "jobs must be at least 1"),
        ("scheme=ddp jobs=1,2", "one command takes one jobs"),
        ("scheme=ddp cluster=64gpu jobs=2", "jobs has no effect on a simulated step"),
        ("scheme=ddp cluster=16gpu engine=slurm jobs=2", "write cluster.slurm.throttle=2"),
    ],
)
def test_jobs_that_mean_nothing_are_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        resolve_job(words.split())


def test_the_engine_refuses_before_it_starts_anything(tmp_path):
    with pytest.raises(ConfigError, match="need 2000 cores"):
        Torchrun().run([make_case()], Store(tmp_path), jobs=1000)
    assert list(tmp_path.iterdir()) == []


def test_what_is_started_at_a_place_stays_on_its_cores():
    one = machine.own_cores()[0]
    with Place((one,)).entered():
        said = finished([sys.executable, "-S", "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]).stdout
    assert said.strip() == str([one])
    assert one in os.sched_getaffinity(0)
    assert len(os.sched_getaffinity(0)) == len(machine.own_cores())


def test_lanes_take_turns_and_end_together(monkeypatch):
    monkeypatch.setattr("ssfx.lab.engines.torchrun.POLL_S", 0.0)
    seen = []

    def lane(name, steps, fails=False):
        try:
            for step in range(steps):
                seen.append((name, step))
                yield
            if fails:
                raise RunError("over")
        finally:
            seen.append((name, "ended"))

    _alternate([lane("a", 1), lane("b", 2)])
    assert seen == [("a", 0), ("b", 0), ("a", "ended"), ("b", 1), ("b", "ended")]
    seen.clear()
    with pytest.raises(RunError):
        _alternate([lane("a", 1, fails=True), lane("b", 9)])
    assert seen == [("a", 0), ("b", 0), ("a", "ended"), ("b", "ended")]
