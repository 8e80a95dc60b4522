"""Traces of torch.profiler from real GPUs, of several ranks, and in the shapes that people record."""

import gzip
import json
import random
from pathlib import Path

import pytest
from refusals import refusal

from ssfx.core.errors import ConfigError
from ssfx.lab.calibration.profiler_trace import READY, profile_of_trace
from ssfx.lab.calibration.rank_traces import MOST_FILES, profile_of_traces
from ssfx.perf_model.operator_counts import model_work
from ssfx.planning.profile import Profile

TRACES = Path(__file__).parents[1] / "data" / "traces"


def excerpt(name):
    return json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))


def event(name, ts, dur=1.0, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def backward(at, count=2):
    """Forward of 100 us, then gradients 100 us apart."""
    yield event("aten::linear", at)
    yield event("autograd::engine::evaluate_function: AddmmBackward0", at + 100, 50.0)
    for i in range(count):
        dims = {"Input Dims": [[4 + i]], "Input type": ["float"]}
        yield event(READY, at + 199 + 100 * i, **dims)


def step(at, name="SGD"):
    return event(f"Optimizer.step#{name}.step", at, 50.0, "user_annotation")


def write(path, *events, **more):
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return path


@pytest.mark.parametrize(
    ("name", "gpu", "gradients", "forward_ms", "backward_ms", "step_ms", "words"),
    [
        # by hand from kernels of the whole trace: forward ends at 51.26, backward at 56.54 ms of the device's clock
        ("mi300x_ddp", "AMD Instinct MI300X", 62, 2.22, 5.28, 0.031, "1 allreduce"),
        ("mi300x_no_step", "AMD Instinct MI300X", 9, 2.48, 0.719, 0.0, "no optimizer step, which is taken for 0"),
        ("mi250", "AMD Radeon Graphics", 2, 1.347, 7.509, 0.0085, ""),
        ("a100_compiled", "NVIDIA A100-SXM4-80GB", 163, 49.6, 131.6, 6.46, "5 SendRecv"),
    ],
)
def test_real_gpus_are_read(name, gpu, gradients, forward_ms, backward_ms, step_ms, words):
    found = profile_of_trace(TRACES / f"{name}.json.gz")
    assert (found.origin.hardware, found.device, len(found.tensors)) == (gpu, "cuda", gradients)
    took_ms = tuple(1e3 * value for value in (found.forward_s, found.backward_s, found.step_s))
    assert took_ms == pytest.approx((forward_ms, backward_ms, step_ms), rel=0.01)
    assert words in found.origin.note


def test_names_come_from_the_model_where_the_trace_has_no_shapes():
    path, tensors = TRACES / "v100_resnet50.json.gz", model_work("resnet50").tensors
    found = profile_of_trace(path, "resnet50", tensors)
    assert (found.tensors, found.model) == (tensors, "resnet50")
    assert 1e3 * found.backward_s == pytest.approx(63.4, rel=0.01)
    with pytest.raises(ConfigError, match="has no shapes; record it with record_shapes=True, or add model=NAME"):
        profile_of_trace(path)
    with pytest.raises(ConfigError, match="has 161 gradients and resnet152 has 467; it is of another model"):
        profile_of_trace(path, "resnet152", model_work("resnet152").tensors)


def test_gradients_are_ready_when_kernels_end_not_when_they_were_launched():
    """The MI300X ran 25 ms behind its host, which had launched all of backward before the device began with forward."""
    raw = excerpt("mi300x_ddp")
    grads = [one for one in raw["traceEvents"] if one["name"] == READY]
    host_us = grads[61]["ts"] - grads[0]["ts"]
    first = profile_of_trace(TRACES / "mi300x_ddp.json.gz")
    device_us = 1e6 * sum(first.ready_gap_s[1:])
    assert host_us > 1.5 * device_us
    kernels = [one for one in raw["traceEvents"] if one["cat"] == "kernel"]
    assert max(one["ts"] for one in kernels) > grads[61]["ts"] + 10e3


def test_work_from_before_the_trace_holds_the_device_up():
    def kernel(number, launched, began, dur):
        yield event("cudaLaunchKernel", launched, cat="cuda_runtime", correlation=number)
        yield event("gemm", began, dur, "kernel", correlation=number, stream=7)

    def read(path, *more):
        return profile_of_trace(
            write(path, *backward(0.0), *kernel(1, 10, 900, 300), *kernel(2, 150, 1200, 50), *more, step(500))
        )

    path = Path("trace.json")
    late = event("gemm", 20.0, 880.0, "kernel", correlation=99, stream=7)
    assert 1e6 * read(path).forward_s == pytest.approx(1200.0)
    assert 1e6 * read(path, late).forward_s == pytest.approx(300.0)  # it began when the earlier kernel had ended
    lost = [event("gemm", 2000.0 + i, 1.0, "kernel", correlation=100 + i, stream=7) for i in range(5)]
    assert "the launches of 5 of 7 kernels are not in the trace" in read(path, *lost).origin.note


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def scaled(name, path, factor):
    raw = excerpt(name)
    for one in raw["traceEvents"]:
        one["ts"], one["dur"] = factor * one["ts"], factor * one["dur"]
    path.write_bytes(gzip.compress(json.dumps(raw).encode()))


def test_a_folder_of_ranks_is_the_slowest_rank_and_how_far_they_are_apart(capsys):
    from ssfx.cli import main

    folder = Path("traces")
    folder.mkdir()
    for rank, factor in enumerate((1.0, 1.0, 1.1)):
        scaled("mi250", folder / f"rank{rank}.json.gz", factor)
    alone = profile_of_trace(TRACES / "mi250.json.gz")
    found = profile_of_traces(folder)
    assert (found.skew, found.model, found.tensors) == (1.1, "traces", alone.tensors)
    assert (found.forward_s, found.backward_s) == pytest.approx(
        (1.1 * alone.forward_s, 1.1 * alone.backward_s), rel=1e-3
    )
    assert "the ranks take 8.86 to 9.74 ms, median 8.86; the slowest rank counts" in found.origin.note
    (folder / "other.json").write_text("{}")
    (folder / "notes.txt").write_text("no trace")
    assert "1 of 4 files are no traces of this training and are left out" in profile_of_traces(folder).origin.note
    assert main(["profile", "trace=traces", "batch_size=8", "--out", "p.json"]) == 0
    assert Profile.from_json(Path("p.json").read_text()).skew == 1.1
    for rank in range(3, 3 + MOST_FILES):
        scaled("mi250", folder / f"rank{rank}.json.gz", 1.0)
    assert f"slowest of the {MOST_FILES - 1} traces of 20 in traces" in profile_of_traces(folder).origin.note


def test_a_folder_without_a_trace_of_a_training_is_refused_in_a_line(capsys):
    folder = Path("traces")
    folder.mkdir()
    assert "traces has no trace (.json or .json.gz)" in refusal(capsys, "profile", "trace=traces")
    (folder / "other.json").write_text("{}")
    assert "it has no traceEvents" in refusal(capsys, "profile", "trace=traces")
    for count in (2, 3):
        write(folder / f"rank{count}.json", *backward(0.0, count), step(900))
    assert "has 2 traces with different gradients" in refusal(capsys, "profile", "trace=traces")


def test_of_accumulated_passes_the_last_is_read_and_said():
    path = write(
        Path("trace.json"),
        *backward(0.0),
        *backward(1000.0),
        *backward(2000.0),
        step(2400),
        *backward(3000.0),
        *backward(4000.0),
        *backward(5000.0),
        step(5400),
    )
    found = profile_of_trace(path)
    assert [spec.shape for spec in found.tensors] == [(4,), (5,)]
    assert (found.forward_s, found.backward_s) == pytest.approx((100e-6, 200e-6))
    assert "each step has 3 backward passes; the last one is read; set accumulate=3" in found.origin.note


def test_an_optimizer_in_another_and_one_after_another_are_one_step():
    inner = event("Optimizer.step#Adam.step", 460.0, 20.0, "user_annotation")
    second = event("Optimizer.step#EMA.step", 520.0, 30.0, "user_annotation")
    path = write(
        Path("trace.json"),
        *backward(0.0),
        step(450, "Both"),
        inner,
        second,
        *backward(1000.0),
        step(1450, "Both"),
        {**inner, "ts": 1460.0},
        {**second, "ts": 1520.0},
    )
    found = profile_of_trace(path)
    assert (found.forward_s, found.step_s, found.optimizer) == pytest.approx((100e-6, 100e-6, "both"))
    assert found.other_s == pytest.approx(450e-6)


def test_iterations_that_the_profiler_cut_are_left_out_and_said():
    cut = [one for one in backward(0.0) if one["name"] == READY][1:]
    path = write(Path("trace.json"), *cut, step(450), *backward(1000.0), step(1450), *backward(2000.0), step(2450))
    found = profile_of_trace(path)
    assert len(found.tensors) == 2
    assert "1 of 3 iterations have other gradients and are left out" in found.origin.note


def test_other_forms_of_chrome_traces_are_read():
    events = [*backward(0.0), step(450), event("a\tkernel", 2.0)]
    old = [{**one, "cat": "Operator"} if one["cat"] == "cpu_op" else one for one in events]
    path = Path("trace.json")
    for text in (
        json.dumps(events),
        json.dumps({"traceEvents": old}),
        json.dumps({"traceEvents": events}).replace("\\t", "\t"),
    ):
        path.write_text(text)
        assert profile_of_trace(path).forward_s == pytest.approx(100e-6)
    engine = [
        {**one, "name": f"autograd::engine::evaluate_function: {READY}"} if one["name"] == READY else one
        for one in events
    ]
    assert profile_of_trace(write(path, *engine)).ready_gap_s == pytest.approx((100e-6, 100e-6))


def test_mutated_traces_give_a_profile_or_one_line():
    path, chosen, read, refused = Path("trace.json"), random.Random(36), 0, []
    text = json.dumps(excerpt("mi250")).encode()
    for _ in range(200):
        broken = bytearray(text)
        kind = chosen.randrange(4)
        at = chosen.randrange(len(broken))
        if kind == 0:
            broken[at] = chosen.randrange(256)
        elif kind == 1:
            del broken[at : at + chosen.randrange(1, 60)]
        elif kind == 2:
            broken[at:at] = chosen.choice([b"null", b"-1", b'"x"', b"[]", b"{}", b"1e999", b","])
        else:
            found = json.loads(text)
            one = chosen.choice(found["traceEvents"])
            one[chosen.choice(sorted(one))] = chosen.choice([None, "x", [], {}, -1.0, 1e300])
            broken = bytearray(json.dumps(found).encode())
        path.write_bytes(broken)
        try:
            profile = profile_of_trace(path)
            assert all(gap >= 0 for gap in profile.ready_gap_s)
            read += 1
        except ConfigError as error:
            refused.append(str(error))
    assert read > 20
    assert len(refused) > 20
    assert not [line for line in refused if "\n" in line]
