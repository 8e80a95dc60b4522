"""bf16 trains every model there is data for on CPUs with few instructions, as on all others."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from workloads.fakes import Recorder, make_case

from ssfx.lab.workloads import datasets, models
from ssfx.lab.workloads import train as training
from ssfx.lab.workloads.nets.recurrent import Gnmt
from ssfx.lab.workloads.train import onednn_has_lstm, prepare, train

HERE = Path(__file__).parent
DATA = {dataset.cls.inputs: dataset.name for dataset in datasets if dataset.cls.here} | {
    "bytes": "stdlib_text(seq_len=8)"
}
DEEP = {"bert_large_narrow", "resnet152_digits"}
"""Made of the layers of bert_mini and resnet_mini, many times over."""
TRAINABLE = {model.name: DATA[model.inputs] for model in models if model.inputs in DATA and model.name not in DEEP}

PROGRAM = """
import json, torch
from workloads.test_precision import TRAINABLE, first_step, translates
torch.set_num_threads(1)
translates()
print(json.dumps({model: first_step(model, "bf16") for model in TRAINABLE}))
"""


def first_step(model: str, precision: str) -> tuple[float | None, list[str]]:
    """Return the loss of a step after which every parameter has a finite gradient, and what the rank noted."""
    recorder = Recorder()
    case = make_case(model=model, dataset=TRAINABLE[model], precision=precision, steps=1, batch_size=2)
    noted = train(case, recorder.records.append, recorder).notes
    assert all(p.grad is not None and p.grad.isfinite().all() for p in recorder.model.parameters())
    return recorder.records[0].loss, list(noted)


def translates() -> None:
    """A small GNMT, whose layers are many LSTMs and whose data are not here, gets a gradient for every parameter."""
    model = Gnmt(vocabulary=50, width=8, layers=3, dropout=0.1)
    prepare(model, torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randint(1, 50, (2, 2, 5))).float().square().mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_there_is_data_for_the_models_that_are_tried() -> None:
    assert {"resnet_tiny", "vgg_tiny", "lstm_tiny", "gpt2_tiny", "bert_mini"} <= set(TRAINABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("onednn", "aten"), [("AVX2", "avx2"), ("SSE41", "default")])
@pytest.mark.nightly
def test_every_model_trains_in_bf16_on_a_cpu_without_avx512(onednn: str, aten: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ONEDNN_MAX_CPU_ISA": onednn,
            "ATEN_CPU_CAPABILITY": aten,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
        },
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(TRAINABLE)
    for model, (loss, _) in found.items():
        assert loss == pytest.approx(first_step(model, "fp32")[0], rel=0.02), model
    if platform.machine() in ("x86_64", "AMD64"):  # where the variables hide what newer processors have
        for _, notes in found.values():
            assert [note.partition(":")[0] for note in notes] == ["oneDNN computes nothing in bfloat16 on this CPU"]


def _gradients(dtype: torch.dtype, prepared: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer, inputs = torch.nn.LSTM(8, 8, 2, batch_first=True), torch.randn(2, 5, 8)
    said = prepare(layer, dtype) if prepared else ()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        out, _ = layer(inputs)
    assert torch.backends.mkldnn.enabled
    assert bool(said) == prepared
    out.float().square().sum().backward()
    return [p.grad for p in layer.parameters() if p.grad is not None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torchs_own_lstm_gives_the_gradients_of_fp32(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = _gradients(torch.float32, prepared=False)
    monkeypatch.setattr(training, "onednn_has_lstm", lambda _dtype: False)
    own = _gradients(dtype, prepared=True)
    assert len(own) == 8
    for one, other in zip(own, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.05)


def test_a_layer_that_raises_leaves_onednn_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "onednn_has_lstm", lambda _dtype: False)
    layer = torch.nn.LSTM(8, 8)
    prepare(layer, torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"input\.size"), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(2, 5, 7))
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize(
    ("computes", "has_lstm", "told"),
    [
        (True, True, ["", ""]),
        (True, False, ["", "oneDNN has no bfloat16 LSTM for this CPU"]),
        (False, False, ["oneDNN computes nothing in bfloat16 on this CPU"] * 2),
    ],
)
def test_what_is_slow_is_said_for_the_models_that_it_slows(
    monkeypatch: pytest.MonkeyPatch, computes: bool, has_lstm: bool, told: list[str]
) -> None:
    monkeypatch.setattr(training, "onednn_computes", lambda _dtype: computes)
    monkeypatch.setattr(training, "onednn_has_lstm", lambda _dtype: has_lstm)
    with torch.device("meta"):
        for name, start in zip(("resnet_tiny", "lstm_tiny"), told, strict=True):
            assert prepare(models[name].build(), torch.float32) == ()
            said = prepare(models[name].build(), torch.bfloat16)
            assert len(said) == bool(start)
            assert all(text.startswith(start) for text in said)


def test_trying_an_operator_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    onednn_has_lstm.__wrapped__(torch.bfloat16)
    assert onednn_has_lstm(torch.float32)
    assert torch.equal(before, torch.get_rng_state())
