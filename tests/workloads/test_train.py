import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from workloads.fakes import WORKLOADS, Recorder, make_case

import ssfx
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads import check_case, datasets, models
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.step import make_optimizer
from ssfx.lab.workloads.train import averaged_buffers, train


def _train(case: Case, folder: Path | None = None, nan_steps: set[int] | None = None) -> tuple[Recorder, Any]:
    recorder = Recorder(nan_steps)
    return recorder, train(case, recorder.records.append, recorder, checkpoint_dir=folder)


def _weights(recorder: Recorder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in recorder.model.state_dict().items()}


def _assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_the_loop_reports_every_step_and_detaches() -> None:
    case = make_case(steps=3, evaluate=True)
    recorder, result = _train(case)
    assert [record.step for record in recorder.records] == [0, 1, 2]
    assert recorder.sync.detached
    assert result.first_step == 0
    assert result.data_fingerprint == datasets.build("digits").fingerprint()
    assert 0 <= result.metrics["top1"] <= 1
    for r in recorder.records:
        parts = (r.forward_s, r.backward_s, r.sparsify_s, r.exposed_comm_s, r.step_s, r.other_s)
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(r.iteration_s)
        assert (r.contributed_bytes, r.sent_bytes, r.achieved_density, r.sparsify_s) == (12, 24, 0.5, 1e-6)
        assert StepRecord.from_json(r.to_json()) == r


def test_attach_gets_the_case() -> None:
    recorder, _ = _train(
        make_case(
            steps=1, scheme="wfbp", compressor="topk", density=0.1, memory="none", seed=3, scheme_options={"a": 1}
        )
    )
    assert recorder.sync.options == {
        "scheme": "wfbp",
        "compressor": "topk",
        "density": 0.1,
        "memory": "none",
        "seed": 3,
        "scaler": None,
        "a": 1,
    }


def test_auto_is_told_the_steps_of_the_run() -> None:
    for given, told in (({}, 3), ({"run_steps": 9}, 9)):
        recorder, _ = _train(make_case(steps=3, scheme="auto", scheme_options=given))
        assert recorder.sync.options["run_steps"] == told


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_run_is_its_seed(optimizer: str) -> None:
    case = make_case(model="lstm_tiny", dataset="stdlib_text(seq_len=8)", optimizer=optimizer, lr=0.01, seed=5)
    first, second = _train(case)[0], _train(case)[0]
    _assert_equal(_weights(first), _weights(second))
    assert [r.loss for r in first.records] == [r.loss for r in second.records]
    other = _train(make_case(model="lstm_tiny", dataset="stdlib_text(seq_len=8)", optimizer=optimizer, seed=6))[0]
    assert [r.loss for r in first.records] != [r.loss for r in other.records]


def test_accumulation_exchanges_on_the_last_micro_step_only() -> None:
    recorder, _ = _train(make_case(steps=3, accumulate=4))
    assert recorder.sync.exchanges == 3
    assert recorder.sync.local_backwards == 9


def test_accumulation_equals_one_large_batch() -> None:
    # Without batch norm the mean over micro-batches is the mean over the batch. One stream holds the samples of both.
    text = {"model": "lstm_tiny", "dataset": "stdlib_text(seq_len=8)", "steps": 1, "lr": 0.1}
    small = _train(make_case(**text, batch_size=2, accumulate=3))[0]
    large = _train(make_case(**text, batch_size=6))[0]
    for name, value in _weights(small).items():
        torch.testing.assert_close(value, _weights(large)[name])
    assert small.records[0].loss == pytest.approx(large.records[0].loss, rel=1e-5)


def test_control_passes_precede_timed_steps_and_leave_nothing_behind() -> None:
    recorder, _ = _train(make_case(steps=5, warmup_steps=2, time_compute_only=True))
    assert recorder.sync.exchanges == 5
    assert recorder.sync.local_backwards == 3
    times = [(record.control_forward_s, record.control_backward_s) for record in recorder.records]
    assert times[:2] == [(None, None)] * 2
    assert all(forward_s > 0 and backward_s > 0 for forward_s, backward_s in times[2:])
    usual, _ = _train(make_case(steps=5, warmup_steps=2))
    assert all(record.control_forward_s is None for record in usual.records)
    assert [r.loss for r in recorder.records] == [r.loss for r in usual.records]
    for name, parameter in recorder.model.named_parameters():
        assert torch.equal(parameter, dict(usual.model.named_parameters())[name]), name


def test_clipping_bounds_the_exchanged_gradient() -> None:
    recorder, _ = _train(make_case(steps=1, momentum=0.0, lr=1.0, clip_norm=1e-3))
    torch.manual_seed(0)
    before = models["resnet_tiny"].build()
    change = [p - q for p, q in zip(recorder.model.parameters(), before.parameters(), strict=True)]
    norm = torch.nn.utils.get_total_norm([c.detach() for c in change])
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_bf16_trains_in_float32_weights() -> None:
    recorder, _ = _train(make_case(model="lstm_tiny", dataset="stdlib_text(seq_len=8)", precision="bf16"))
    assert all(p.dtype == torch.float32 for p in recorder.model.parameters())
    exact = _train(make_case(model="lstm_tiny", dataset="stdlib_text(seq_len=8)"))[0]
    assert recorder.records[0].loss != exact.records[0].loss
    assert recorder.records[0].loss == pytest.approx(exact.records[0].loss, rel=0.01)


def test_a_skipped_step_is_counted_and_changes_nothing() -> None:
    recorder, result = _train(make_case(steps=3, momentum=0.0), nan_steps={2})
    assert [r.skipped for r in recorder.records] == [False, False, True]
    assert result.metrics["skipped_steps"] == 1
    shorter, _ = _train(make_case(steps=2, momentum=0.0))
    for name, parameter in recorder.model.named_parameters():
        assert torch.equal(parameter, shorter.model.get_parameter(name)), name


class _Nothing(Recorder):
    """A runtime with nobody to exchange with: gradients pass through and there are no statistics."""

    def __call__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
        sync = super().__call__(model, optimizer, **options)
        sync._arrive = lambda name, parameter: None  # type: ignore[method-assign]
        self.weights = [p.detach().clone() for p in model.parameters()]
        return sync


def _spoil_inputs(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    digits = type(datasets.build("digits"))
    original = digits.train_loader

    def loader(self: Any, *arguments: Any, **options: Any) -> Any:
        stream = original(self, *arguments, **options)

        class Spoilt:
            def __getitem__(self, index: int) -> Any:
                inputs, targets = stream[index]
                return inputs * (math.nan if index in steps else 1.0), targets

        return Spoilt()

    monkeypatch.setattr(digits, "train_loader", loader)


def test_a_single_rank_skips_a_gradient_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_inputs(monkeypatch, {0, 1})
    recorder = _Nothing()
    result = train(make_case(steps=2), recorder.records.append, recorder)
    assert [(r.loss, r.skipped, r.sent_bytes) for r in recorder.records] == [(None, True, 0.0)] * 2
    assert result.metrics["skipped_steps"] == 2
    for parameter, before in zip(recorder.model.parameters(), recorder.weights, strict=True):
        assert torch.equal(parameter, before)


def test_three_non_finite_losses_in_a_row_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_inputs(monkeypatch, {0, 2, 3, 4})
    recorder = _Nothing()
    # Batch norm's running statistics are NaN after the first spoilt batch, but training does not read them.
    with pytest.raises(RunError, match=r"rank 0 was not finite for 3 steps in a row, up to step 4"):
        train(make_case(steps=9), recorder.records.append, recorder)
    assert [r.step for r in recorder.records] == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("model", WORKLOADS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resumed_run_equals_an_uninterrupted_one(model: str, optimizer: str, tmp_path: Path) -> None:
    case = make_case(
        model=model, dataset=WORKLOADS[model], optimizer=optimizer, lr=0.01, steps=5, checkpoint_every=2, batch_size=2
    )
    whole, _ = _train(case, tmp_path / "whole")

    class Interrupted(Exception):
        pass

    def stop(record: StepRecord) -> None:
        if record.step == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(case, stop, Recorder(), checkpoint_dir=tmp_path / "cut")
    resumed, result = _train(case, tmp_path / "cut")
    assert result.first_step == 2
    assert [r.step for r in resumed.records] == [2, 3, 4]
    assert [r.loss for r in resumed.records] == [r.loss for r in whole.records[2:]]
    _assert_equal(_weights(whole), _weights(resumed))
    _assert_equal(whole.sync.residual, resumed.sync.residual)


def test_a_finished_run_is_only_evaluated_again(tmp_path: Path) -> None:
    case = make_case(steps=2, checkpoint_every=2, evaluate=True)
    _, first = _train(case, tmp_path)
    again, second = _train(case, tmp_path)
    assert again.records == []
    assert second.metrics == first.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "resnet_tin"}, "did you mean 'resnet_tiny'"),
        ({"dataset": "digit"}, "did you mean 'digits'"),
        ({"dataset": "stdlib_text"}, r"reads gray images.*holds bytes; use dataset=digits"),
        ({"model": "bert_base"}, "use dataset=squad"),
        ({"model": "gpt2_tiny", "dataset": "stdlib_text(seq_len=300)"}, r"use dataset=stdlib_text\(seq_len=256\)"),
        ({"precision": "fp16"}, "on the CPU use bf16"),
        ({"optimizer": "adam", "momentum": 1.0}, "beta1"),
    ],
)
def test_impossible_cases_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_case(make_case(**changes))


def test_the_world_size_must_be_the_processes() -> None:
    with pytest.raises(ConfigError, match="world_size=2, but 1 processes"):
        _train(make_case(world_size=2))


def test_cuda_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use device=cpu"):
        _train(make_case(device="cuda", precision="fp16"))


def test_adam_takes_momentum_as_beta1() -> None:
    model = torch.nn.Linear(1, 1)
    for name in ("adam", "adamw"):
        optimizer = make_optimizer(make_case(optimizer=name, momentum=0.8, weight_decay=0.1), model)
        assert optimizer.defaults["betas"] == (0.8, 0.999)
        assert optimizer.defaults["weight_decay"] == 0.1


def test_buffers_of_one_rank_stay() -> None:
    model = torch.nn.BatchNorm2d(2)
    assert model.running_mean is not None
    with averaged_buffers(model, 1, None):
        assert model.running_mean.tolist() == [0.0, 0.0]


@pytest.mark.nightly
@pytest.mark.slow
def test_digits_are_learned() -> None:
    case = make_case(steps=150, batch_size=32, lr=0.01, weight_decay=1e-4, evaluate=True)
    result = train(case, lambda _record: None, ssfx.attach)
    assert (result.metrics["top1"] or 0) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm_tiny", pytest.param("gpt2_tiny", marks=pytest.mark.nightly)])
def test_text_is_learned(model: str) -> None:
    text = {"model": model, "dataset": "stdlib_text(seq_len=64,held_out_bytes=8192)", "evaluate": True}
    perplexity = []
    for steps in (1, 100):
        case = make_case(**text, steps=steps, batch_size=8, optimizer="adamw", lr=1e-3)
        perplexity.append(train(case, lambda _record: None, ssfx.attach).metrics["perplexity"] or 0)
    assert perplexity[0] > 100
    assert perplexity[1] < 45


def test_the_trace_says_when_each_step_began_and_what_its_parts_took(tmp_path: Path) -> None:
    recorder, _ = _train(make_case(steps=2, accumulate=2))
    recorder.sync.tracer.save(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] != "M"]
    assert [e["args"]["step"] for e in events if e["cat"] == "begin"] == [0, 1]
    for step in range(2):
        spans = [e for e in events if e["ph"] == "X" and e["args"]["step"] == step]
        stages = ["other", *(["forward", "backward", "other"] * 2), "step"]
        assert [e["cat"] for e in spans] == stages
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(spans))
