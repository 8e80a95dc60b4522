"""bf16 trains every model there is data for on CPUs with few instructions, as on all others."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from workloads.fakes import Recorder, make_case

from ssfx.workloads import datasets, models
from ssfx.workloads.nets import lstm_operator
from ssfx.workloads.nets.lstm_operator import lstm_of_this_cpu, onednn_has_lstm, slow_operators
from ssfx.workloads.train import train

HERE = Path(__file__).parent
DATA = {dataset.cls.inputs: dataset.name for dataset in datasets if dataset.cls.here} | {
    "bytes": "stdlib_text(seq_len=8)", models["bert_large_narrow"].inputs: "stdlib_spans(seq_len=40)",
}  # fmt: skip
TRAINABLE = {model.name: DATA[model.inputs] for model in models if model.inputs in DATA}

PROGRAM = """
import json, torch
from workloads.test_precision import TRAINABLE, first_step
torch.set_num_threads(1)
print(json.dumps({model: first_step(model, "bf16") for model in TRAINABLE}))
"""


def first_step(model: str, precision: str) -> tuple[float | None, list[str]]:
    """Return the loss of a step after which every parameter has a finite gradient, and what the rank noted."""
    recorder = Recorder()
    case = make_case(model=model, dataset=TRAINABLE[model], precision=precision, steps=1, batch_size=2)
    noted = train(case, recorder.records.append, recorder).notes
    assert all(p.grad is not None and p.grad.isfinite().all() for p in recorder.model.parameters())
    return recorder.records[0].loss, list(noted)


def test_there_is_data_for_the_models_that_are_tried() -> None:
    assert {"resnet_tiny", "vgg_tiny", "lstm_tiny", "gpt2_tiny", "bert_large_narrow"} <= set(TRAINABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("onednn", "aten"), [("AVX2", "avx2"), ("SSE41", "default")])
def test_every_model_trains_in_bf16_on_a_cpu_without_avx512(onednn: str, aten: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True,
        env={
            **os.environ, "ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": aten,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(TRAINABLE)
    for model, (loss, _) in found.items():
        if model.endswith("_tiny"):  # batch norm over two samples, 150 times over, makes much of little
            assert loss == pytest.approx(first_step(model, "fp32")[0], rel=0.02), model
    noted = {model for model, (_, notes) in found.items() if notes}
    if platform.machine() in ("x86_64", "AMD64"):
        assert noted == {"lstm_tiny", "lstm_mini"}
        assert "oneDNN has no bfloat16 LSTM for this CPU" in found["lstm_tiny"][1][0]


def _gradients(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer, inputs = torch.nn.LSTM(8, 8, 2, batch_first=True), torch.randn(2, 5, 8)
    with torch.autocast("cpu", dtype=dtype), lstm_of_this_cpu(inputs):
        out, _ = layer(inputs)
    out.float().square().sum().backward()
    return [p.grad for p in layer.parameters() if p.grad is not None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torchs_own_lstm_gives_onednns_gradients(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    there = onednn_has_lstm(dtype)
    usual = _gradients(dtype)
    monkeypatch.setattr(lstm_operator, "onednn_has_lstm", lambda _dtype: False)
    without = _gradients(dtype)
    assert torch.backends.mkldnn.enabled
    assert len(without) == 8
    for one, other in zip(usual, without, strict=True):
        torch.testing.assert_close(one, other, rtol=0.1 if there else 0.0, atol=0.05 if there else 0.0)


def test_only_a_model_with_an_lstm_is_slow_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_operator, "onednn_has_lstm", lambda _dtype: False)
    with torch.device("meta"):
        assert slow_operators(models["resnet_tiny"].build(), torch.bfloat16) == ()
        (said,) = slow_operators(models["lstm_tiny"].build(), torch.bfloat16)
    assert said.startswith("oneDNN has no bfloat16 LSTM for this CPU")


def test_trying_an_operator_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    onednn_has_lstm.__wrapped__(torch.bfloat16)
    assert onednn_has_lstm(torch.float32)
    assert torch.equal(before, torch.get_rng_state())
