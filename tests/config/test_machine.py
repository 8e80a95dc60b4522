"""GPUs are counted as a CUDA program would see them, ranks share the cores, and the user's memory settings stay."""

import os
import subprocess

import pytest

from ssfx.core import machine


@pytest.fixture
def smi(monkeypatch):
    """Return a function that makes nvidia-smi answer with the given names."""

    def answer(*names, returncode=0):
        def run(*arguments, **options):
            return subprocess.CompletedProcess(arguments, returncode, "\n".join(names) + "\n", "")

        monkeypatch.setattr("shutil.which", lambda name: name)
        monkeypatch.setattr("subprocess.run", run)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        machine.gpus.cache_clear()

    yield answer
    machine.gpus.cache_clear()


def test_all_gpus_are_seen(smi):
    smi("NVIDIA A100", "NVIDIA A100")
    assert machine.gpus() == ("NVIDIA A100", "NVIDIA A100")
    assert machine.description().endswith("2 NVIDIA A100")


@pytest.mark.parametrize(("visible", "count"), [("1", 1), ("0,1", 2), ("", 0), ("-1", 0)])
def test_hidden_gpus_do_not_count(smi, monkeypatch, visible, count):
    smi("A", "A", "A")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(machine.gpus()) == count


def test_a_driver_that_does_not_answer_is_no_gpu(smi):
    smi("NVIDIA-SMI has failed", returncode=9)
    assert machine.gpus() == ()


def test_a_machine_without_nvidia_smi_has_none(smi, monkeypatch):
    smi()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert machine.gpus() == ()
    assert machine.cores() >= 1
    assert machine.memory_bytes() > 0


@pytest.fixture
def bound(monkeypatch, tmp_path):
    """Return a function that gives a machine of two threads a core, and the cores that a rank on it stays on."""

    def on(rank, ranks, count, told=True):
        for cpu in range(count if told else 0):
            folder = tmp_path / f"cpu{cpu}" / "topology"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "physical_package_id").write_text("0\n")
            (folder / "core_id").write_text(f"{cpu % max(1, count // 2)}\n")
        kept = set(range(count))
        monkeypatch.setattr(machine, "_CPUS", tmp_path)
        monkeypatch.setattr(machine, "_shared_cores", 0)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: kept, raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, own: kept.intersection_update(own), raising=False)
        machine.share_cores(rank, ranks)
        assert machine.cores() == count
        return machine.own_cores()

    return on


def test_ranks_have_whole_cores_of_their_own(bound):
    assert [bound(rank, 4, 8) for rank in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [bound(rank, 2, 2) for rank in range(2)] == [[0], [1]]
    parts = [bound(rank, 3, 16) for rank in range(3)]
    assert sorted(core for part in parts for core in part) == list(range(16))


def test_more_ranks_than_cores_share_them_evenly_or_not_at_all(bound):
    assert [bound(rank, 4, 2) for rank in range(4)] == [[0], [0], [1], [1]]
    assert [bound(rank, 3, 2) for rank in range(3)] == [[0, 1]] * 3


def test_cores_without_a_known_place_are_taken_as_they_are_numbered(bound):
    assert [bound(rank, 2, 4, told=False) for rank in range(2)] == [[0, 1], [2, 3]]


def test_a_system_without_places_for_threads_is_left_alone(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    machine.share_cores(0, 2)
    assert machine.own_cores() == []
    assert machine.cores() == os.cpu_count()


def test_what_the_user_says_of_memory_stays(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert machine.steady_memory() == {
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:"
        "glibc.malloc.trim_threshold=1099511627776"
    }
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    assert machine.steady_memory() == {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
