"""GPUs are counted as a CUDA program would see them, and their absence is not an error."""

import subprocess

import pytest

from ssfx import machine


@pytest.fixture
def smi(monkeypatch):
    """Return a function that makes nvidia-smi answer with the given names."""

    def answer(*names, returncode=0):
        def run(*arguments, **options):
            return subprocess.CompletedProcess(arguments, returncode, "\n".join(names) + "\n", "")

        monkeypatch.setattr(machine.shutil, "which", lambda name: name)
        monkeypatch.setattr(machine.subprocess, "run", run)
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
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine.gpus() == ()
    assert machine.cores() >= 1
    assert machine.memory_bytes() > 0
