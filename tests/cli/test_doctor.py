"""The doctor reports facts, and fails when runs are impossible."""

import subprocess
import sys

import pytest
from processes import HANG_S
from refusals import output

from ssfx.cli import main, terminal
from ssfx.lab.cli import doctor


@pytest.fixture
def no_data(monkeypatch):
    monkeypatch.setattr(doctor, "_datasets", lambda: [("digits", ""), ("text", "text is missing")])


def answer(**changes):
    return {"cuda": False, "gpus": 0, "gloo": True, "nccl": True, "bf16": True, "bf16_lstm": True, **changes}, ""


def test_healthy_machine(no_data, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "ask_torch", answer)
    out = output(capsys, "doctor")
    assert "ssfx run on the CPU (gloo): runs" in out
    assert "ssfx run device=cuda (nccl): does not run, no GPU here" in out
    assert "dataset=text: does not run, text is missing" in out
    assert "precision=bf16: runs\n" in out
    assert "precision=fp16: does not run, no GPU here, and on the CPU it is refused" in out


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ({"bf16": False, "bf16_lstm": False}, "but on the CPU far slower than fp32: oneDNN computes nothing in bf16"),
        ({"bf16_lstm": False}, "but LSTMs on the CPU several times slower than in fp32"),
    ],
)
def test_a_cpu_that_is_slow_in_bf16_is_told(no_data, monkeypatch, capsys, lacks, told):
    monkeypatch.setattr(doctor, "ask_torch", lambda: answer(**lacks))
    assert f"precision=bf16: runs, {told}" in output(capsys, "doctor")


def test_precisions_of_a_gpu_run(no_data, monkeypatch, capsys):
    monkeypatch.setattr(doctor.machine, "gpus", lambda: ("some GPU",))
    monkeypatch.setattr(doctor, "ask_torch", lambda: answer(cuda=True, gpus=1))
    assert "precision=fp16: runs\n" in output(capsys, "doctor")


def test_torch_that_does_not_import_is_a_failure(no_data, monkeypatch, capsys):
    def broken(*arguments, **options):
        return subprocess.CompletedProcess(arguments, 1, "", "Traceback\nImportError: libcudart.so.12")

    monkeypatch.setattr(doctor.subprocess, "run", broken)
    assert main(["doctor"]) == 1
    assert "does not import: ImportError: libcudart.so.12" in capsys.readouterr().out


def test_torch_that_hangs_is_a_failure(no_data, monkeypatch, capsys):
    def hang(*arguments, **options):
        raise subprocess.TimeoutExpired(sys.executable, 1)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert main(["doctor"]) == 1
    assert "did not import within" in capsys.readouterr().out


@pytest.mark.slow
def test_torch_answers(monkeypatch):
    monkeypatch.setattr(doctor, "TORCH_TIMEOUT_S", HANG_S)
    said, problem = doctor.ask_torch()
    assert problem == ""
    assert said["gloo"]
    assert {type(said[name]) for name in ("bf16", "bf16_lstm")} == {bool}


def test_random_samples_run_for_any_model():
    found = dict(doctor._datasets())
    assert found["synthetic"] == ""
    assert all("''" not in why for why in found.values())


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_wider_than_the_terminal(monkeypatch, capsys, width):
    long = "data is missing: " + "put it where it belongs, " * 12
    monkeypatch.setattr(doctor, "_datasets", lambda: [("digits", ""), ("text", long)])
    monkeypatch.setattr(doctor, "ask_torch", answer)
    monkeypatch.setattr(terminal, "columns", lambda wide=False: width)
    lines = output(capsys, "doctor").splitlines()
    assert max(map(len, lines)) <= width
    assert "dataset=text: does not run, data is missing:" in " ".join(line.strip() for line in lines)
