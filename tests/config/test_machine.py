"""GPUs are counted as a CUDA program would see them, ranks share the cores, and the user's memory settings stay."""

import ctypes
import os
import queue
import subprocess
import threading

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


@pytest.fixture
def thread():
    """Start threads that the system knows by a name; returns their numbers there."""
    end, started = threading.Event(), []

    def start(name):
        numbers = queue.SimpleQueue()

        def run():
            ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME
            numbers.put(threading.get_native_id())
            end.wait()

        started.append(threading.Thread(target=run))
        started[-1].start()
        return numbers.get()

    yield start
    end.set()
    for one in started:
        one.join()


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="a Linux policy")
@pytest.mark.parametrize(("cores", "switch"), [([0], "1"), ([0, 1], "1"), ([0], "0"), ([0], None)])
def test_listeners_that_start_inside_are_batch_threads_on_one_core_if_asked_for(thread, monkeypatch, cores, switch):
    monkeypatch.setattr(machine, "own_cores", lambda: cores)
    monkeypatch.delenv(machine.BATCH_SCHEDULING, raising=False)
    if switch is not None:
        monkeypatch.setenv(machine.BATCH_SCHEDULING, switch)
    earlier = thread(machine.GLOO_LISTENER)
    with machine.batch_schedule_network_threads():
        inside, other = thread(machine.GLOO_LISTENER), thread("worker")
    later = thread(machine.GLOO_LISTENER)
    assert machine.batch_scheduling() == ({machine.BATCH_SCHEDULING: "1"} if switch == "1" else {})
    policies = [os.sched_getscheduler(number) for number in (earlier, inside, other, later)]
    inside_policy = os.SCHED_BATCH if cores == [0] and switch == "1" else os.SCHED_OTHER
    assert policies == [os.SCHED_OTHER, inside_policy, os.SCHED_OTHER, os.SCHED_OTHER]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_where_the_system_refuses_batch_threads_nothing_changes(thread, monkeypatch, tmp_path):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(machine, "own_cores", lambda: [0])
    monkeypatch.setenv(machine.BATCH_SCHEDULING, "1")
    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    with machine.batch_schedule_network_threads():
        number = thread(machine.GLOO_LISTENER)
    assert number > 0
    monkeypatch.setattr(machine, "_THREADS", tmp_path / "none")
    with machine.batch_schedule_network_threads():
        pass


def test_what_the_user_says_of_memory_stays(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert machine.steady_memory() == {
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:"
        "glibc.malloc.trim_threshold=1099511627776"
    }
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    assert machine.steady_memory() == {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
