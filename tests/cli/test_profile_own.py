"""A model of the user's own: measured, counted for another device, read from a trace; then asked about."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import output, refusal

from ssfx.advice.ranking import advise
from ssfx.cli import main
from ssfx.config.advice_question import resolve_setting
from ssfx.lab.calibration.profiler_trace import profile_of_trace
from ssfx.planning.profile import Profile

MODEL = """
import torch
from torch import nn

def build_model():
    return nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 4)), torch.randn(6, 8)

def with_loss():
    model, batch = build_model()
    return model, {"x": batch}, lambda net, given: net(given["x"]).square().sum()

def bare():
    return build_model()[0]

def images():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 5))
images.sample = (3, 4, 4)
images.num_values = 5
images.batch_size = 7

def tokens():
    return build_model()[0]
tokens.sample = (8,)

def wrong():
    return build_model()[0], torch.randn(6, 9)
"""
NAMES = ["2.bias", "2.weight", "0.bias", "0.weight"]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("function", ["build_model", "with_loss"])
def test_a_function_of_the_users_is_measured_and_what_to_type_next_is_said(function, capsys):
    assert main(["profile", f"mine.py:{function}", "optimizer=adamw", "--out", "p.json"]) == 0
    found = Profile.from_json(Path("p.json").read_text())
    assert sorted(spec.name for spec in found.tensors) == sorted(NAMES)
    assert (found.batch_size, found.device, found.optimizer) == (6, "cpu", "adamw")
    assert min(found.forward_s, found.backward_s, found.step_s) > 0
    assert capsys.readouterr().out.splitlines()[-1] == "Next: ssfx advise profile=p.json cluster=CLUSTER"


def test_it_is_counted_for_a_device_that_is_not_here_and_asked_about(capsys):
    assert main(["profile", "mine.py:build_model", "--on", "a100", "--out", "a.json"]) == 0
    found = Profile.from_json(Path("a.json").read_text())
    assert [spec.name for spec in found.tensors] == NAMES
    assert (found.origin.kind, found.device) == ("nominal", "a100")
    capsys.readouterr()
    assert main(["plan", "profile=a.json", "cluster=16gpu", "scheme=ddp", "--json"]) == 0
    assert [spec["name"] for spec in json.loads(capsys.readouterr().out)["tensors"]] == NAMES
    step = json.loads(output(capsys, "simulate", "profile=a.json", "cluster=16gpu", "scheme=ddp", "--json"))
    assert (step["batch_size"], step["profile"]["kind"]) == (6, "nominal")
    advice = advise(resolve_setting(["profile=a.json", "cluster=16gpu"]), ["topk"])
    assert "mine.py:build_model" in str(advice).splitlines()[0]


def test_a_saved_profile_is_not_taken_for_what_it_is_not(capsys):
    main(["profile", "mine.py:build_model", "--on", "a100", "--out", "a.json"])
    capsys.readouterr()
    ask = ("advise", "profile=a.json", "cluster=16gpu")
    assert "is of device a100, and the cluster has rtx2080ti devices" in refusal(
        capsys, *ask[:2], "cluster=acpsgd_1gbe"
    )
    assert "is of batch_size=6, not 7" in refusal(capsys, *ask, "batch_size=7")
    assert "step of optimizer=sgd, not adam" in refusal(capsys, *ask, "optimizer=adam")
    assert "has no network to train" in refusal(capsys, "run", "profile=a.json")
    assert "there is no file" in refusal(capsys, "advise", "profile=b.json", "cluster=16gpu")
    assert "is it model=resnet_tiny?" in refusal(capsys, "advise", "profile=resnet_tiny", "cluster=16gpu")
    for text in ("{}", '{"model": 1', "[]"):
        Path("c.json").write_text(text)
        assert "is no profile that can be read" in refusal(capsys, "advise", "profile=c.json", "cluster=16gpu")


def test_a_model_alone_is_measured_and_counted_where_the_file_says_what_a_sample_is(capsys):
    assert main(["profile", "mine.py:images", "--out", "a.json"]) == 0
    assert main(["profile", "mine.py:images", "--on", "h100", "--out", "b.json"]) == 0
    both = [Profile.from_json(Path(name).read_text()) for name in ("a.json", "b.json")]
    assert [(one.batch_size, one.device, one.origin.kind) for one in both] == [
        (7, "cpu", "measured"),
        (7, "h100", "nominal"),
    ]
    capsys.readouterr()
    for words in (["mine.py:tokens"], ["model=mine.py:tokens", "dataset=synthetic"]):  # numbers, not tokens, were meant
        assert "must have the same dtype" in refusal(capsys, "profile", *words)


def test_functions_that_cannot_be_measured_are_refused_in_a_line(capsys):
    assert "returns a model without a batch" in refusal(capsys, "profile", "mine.py:bare")
    assert "the model fails on its batch" in refusal(capsys, "profile", "mine.py:wrong")
    assert "unknown function" in refusal(capsys, "profile", "mine.py:nothing")
    assert "unknown device" in refusal(capsys, "profile", "mine.py:build_model", "--on", "a10000")
    assert "scheme has no effect on this measurement" in refusal(capsys, "profile", "mine.py:build_model", "scheme=ddp")
    assert "unknown key 'colour'" in refusal(capsys, "profile", "mine.py:build_model", "colour=red")


def event(name, ts, dur=1.0, cat="cpu_op", **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "args": args}


def iteration(at, shapes=((4,), (4, 8)), gap=100.0):
    """Forward from `at` + 10, backward from + 110, a gradient every `gap` us, then a step of 50 us."""
    yield event("Optimizer.zero_grad#SGD.zero_grad", at, 5.0, "user_annotation")
    yield event("aten::linear", at + 10)
    yield event("autograd::engine::evaluate_function: AddmmBackward0", at + 110)
    for i, shape in enumerate(shapes):
        dims = {"Input Dims": [list(shape)], "Input type": ["c10::BFloat16"]} if shape else {}
        yield event("torch::autograd::AccumulateGrad", at + 110 + gap * (i + 1) - 1, **dims)
    yield event("Optimizer.step#SGD.step", at + 400, 50.0, "user_annotation")


def write(*events, path="trace.json"):
    Path(path).write_text(json.dumps({"traceEvents": events}))
    return Path(path)


def test_a_trace_gives_gradients_in_ready_order_with_shapes_and_medians():
    path = write(*iteration(0.0), *iteration(1000.0, gap=120.0), *iteration(2000.0, gap=120.0))
    found = profile_of_trace(path)
    assert [(spec.shape, spec.dtype) for spec in found.tensors] == [((4,), "bfloat16"), ((4, 8), "bfloat16")]
    assert found.ready_gap_s == pytest.approx((120e-6, 120e-6))
    assert (found.forward_s, found.step_s, found.other_s) == pytest.approx((100e-6, 50e-6, 560e-6))
    assert (found.optimizer, found.device, found.origin.kind) == ("sgd", "cpu", "measured")


def test_on_a_gpu_a_gradient_is_ready_when_its_kernels_have_ended_and_nccl_does_not_count():
    def kernel(number, launched, began, dur, name="gemm"):
        yield event("cudaLaunchKernel", launched, cat="cuda_runtime", correlation=number)
        yield event(name, began, dur, "kernel", correlation=number)

    path = write(
        *iteration(0.0),
        *kernel(1, 20, 30, 300),
        *kernel(2, 120, 330, 100),
        *kernel(3, 220, 430, 200),
        *kernel(4, 250, 600, 5000, "ncclDevKernel_AllReduce"),
        *kernel(5, 410, 5600, 40),
    )
    found = profile_of_trace(path)
    assert found.device == "cuda"
    assert found.ready_gap_s == pytest.approx((100e-6, 200e-6))
    assert (found.forward_s, found.step_s) == pytest.approx((320e-6, 40e-6))


def test_a_trace_stands_for_a_profile_so_that_a_log_and_a_trace_are_an_answer_in_two_commands(capsys):
    from systems.nccl_text import as_text

    from ssfx.perf_model.exchange_tables import ExchangeTable

    def kernel(number, launched, began, dur):
        yield event("cudaLaunchKernel", launched, cat="cuda_runtime", correlation=number)
        yield event("gemm", began, dur, "kernel", correlation=number)

    path = write(
        *iteration(0.0, ((400, 100), (100, 800))),
        *kernel(1, 20, 30, 300),
        *kernel(2, 120, 330, 100),
        *kernel(3, 220, 430, 200),
        *kernel(4, 410, 5600, 40),
    )
    sizes = tuple(2**power for power in range(3, 25))
    log = ExchangeTable("all_reduce", 4, 2, sizes, tuple(30 + size / 1e3 for size in sizes))
    Path("mine.log").write_text(as_text(log))
    Path("trace.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert main(["cluster", "import", "mine.log"]) == 0
    capsys.readouterr()
    for name in ("trace.json", "trace.json.gz"):
        out = output(capsys, "advise", f"profile={name}", "cluster=mine.yaml", "batch_size=8")
        assert "on mine.yaml: 4 ranks" in out
        assert "ANSWER" in out
        assert "activations unknown" in out
    assert "as a Chrome trace" in refusal(capsys, "advise", f"profile={cut('trace.json.gz')}", "cluster=mine.yaml")


def test_a_gzip_that_unpacks_to_more_than_any_trace_is_refused_before_memory_is_full(capsys, monkeypatch):
    monkeypatch.setattr("ssfx.core.files.MOST_UNPACKED_BYTES", 2**24)
    Path("bomb.json.gz").write_bytes(gzip.compress(b"[" + b" " * 2**26 + b"]"))
    assert "bomb.json.gz cannot be read: it unpacks to more than" in refusal(capsys, "profile", "trace=bomb.json.gz")


def cut(name):
    Path("cut.json.gz").write_bytes(Path(name).read_bytes()[:-9])
    return "cut.json.gz"


def test_a_real_trace_is_read_with_the_names_of_the_model(capsys):
    from torch.optim import SGD
    from torch.profiler import profile

    from ssfx.lab.workloads.own_batch import own_batch

    own = own_batch("mine.py:build_model")
    optimizer = SGD(own.model.parameters())
    with profile(record_shapes=True, acc_events=True) as recorded:  # without, torch 2.11 warns
        for _ in range(2):
            optimizer.zero_grad()
            own.one_loss().backward()
            optimizer.step()
    recorded.export_chrome_trace("real.json.gz")
    words = ["trace=real.json.gz", "model=mine.py:build_model", "batch_size=6", "--out", "p.json"]
    assert main(["profile", *words]) == 0
    found = Profile.from_json(Path("p.json").read_text())
    assert [spec.name for spec in found.tensors] == NAMES
    assert found.tensors[-1].shape == (300, 8)
    assert found.batch_size == 6
    assert main(["profile", "mine.py:build_model", *words[:1], *words[2:]]) == 0  # function first
    assert Profile.from_json(Path("p.json").read_text()) == found
    assert "it is of another model" in refusal(capsys, "profile", "trace=real.json.gz", "model=resnet_tiny")


def test_damaged_traces_are_refused_in_a_line(capsys):
    def said():
        return refusal(capsys, "profile", "trace=trace.json")

    assert "cannot be read: No such file" in said()
    Path("trace.json").write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    assert "as a Chrome trace" in said()
    Path("trace.json").write_text("[1")
    assert "as a Chrome trace" in said()
    write()
    assert "has no gradients" in said()
    write(list(iteration(0.0))[-1], *list(iteration(1000.0))[:-1])
    assert "has no gradients before an optimizer step" in said()
    write(*iteration(0.0, shapes=((), ())))
    assert "has no shapes" in said()
    write(*iteration(0.0), *iteration(1000.0, shapes=((4,), (4, 8), (2,)), gap=50.0))
    assert "have 2 to 3 gradients" in said()


UNDEFINED = {"Input Dims": [[]], "Input type": [""]}


def gradients(at, *args):
    """An iteration whose gradients were recorded with these arguments."""
    yield event("Optimizer.zero_grad#SGD.zero_grad", at, 5.0, "user_annotation")
    yield event("aten::linear", at + 10)
    yield event("autograd::engine::evaluate_function: AddmmBackward0", at + 110)
    for i, one in enumerate(args):
        yield event("torch::autograd::AccumulateGrad", at + 209 + 100 * i, **one)
    yield event("Optimizer.step#SGD.step", at + 900, 50.0, "user_annotation")


def test_an_undefined_gradient_is_none_and_a_scalar_is_one(capsys):
    scalar, matrix = ({"Input Dims": [dims], "Input type": ["float"]} for dims in ([], [4, 8]))
    found = profile_of_trace(write(*gradients(0.0, UNDEFINED, scalar, matrix, {"Input Dims": [[]]})))
    assert [spec.shape for spec in found.tensors] == [(), (4, 8)]
    assert found.ready_gap_s == pytest.approx((200e-6, 100e-6))
    assert "beware: 2 of 4 gradients are undefined in the trace and left out" in found.origin.note
    write(*gradients(0.0, UNDEFINED, UNDEFINED))
    assert "none of its gradients is defined" in refusal(capsys, "profile", "trace=trace.json")
    assert not Path("trace.profile.json").exists()


def test_a_gradient_of_a_type_that_is_not_exchanged_is_named(capsys):
    write(*gradients(0.0, {"Input Dims": [[4]], "Input type": ["c10::complex<float>"]}))
    assert "has type c10::complex<float>; ssfx exchanges float" in refusal(capsys, "profile", "trace=trace.json")


def kernel(number, launched, began, dur, name="gemm"):
    yield event("cudaLaunchKernel", launched, cat="cuda_runtime", correlation=number)
    yield event(name, began, dur, "kernel", correlation=number)


def traced(exchange, computing=20.0):
    """Two gradients of a GPU, the second after an exchange of 400 us; kernels of backward compute 20 us each."""
    shape = {"Input Dims": [[4]], "Input type": ["float"]}
    return write(
        *gradients(0.0, shape, shape),
        *kernel(1, 20, 30, 80),
        *kernel(2, 120, 130, computing),
        *kernel(3, 215, 230, 400, exchange),
        *kernel(4, 220, 640, computing),
        *kernel(5, 910, 920, 40),
    )


@pytest.mark.parametrize(
    "exchange",
    ["ncclDevKernel_AllGather_RING_LL", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "ncclDevKernel_AllReduce"],
)
def test_waiting_for_exchanges_of_the_model_is_said_with_the_busy_part(exchange, capsys):
    traced(exchange)
    assert main(["profile", "trace=trace.json", "batch_size=4", "--out", "p.json"]) == 0
    kind = exchange.split("_")[1]
    said = "backward takes 0.55 ms, in which kernels compute for 0.04 ms and exchanges run alone for"
    assert f"{said} 0.4 ms (1 {kind}): waiting for them counts as computing" in capsys.readouterr().out
    for words in (["advise"], ["simulate", "scheme=ddp"], ["simulate", "scheme=ddp,wfbp"], ["plan", "scheme=ddp"]):
        assert main([*words, "profile=p.json", "cluster=16gpu"]) == 0
        assert "beware: backward takes 0.55 ms, in which" in " ".join(capsys.readouterr().out.split())


def test_exchanges_beside_computing_are_not_said():
    note = profile_of_trace(traced("ncclDevKernel_AllReduce", computing=500.0)).origin.note
    assert "beware" not in note


@pytest.mark.parametrize("category", ["mtia_runtime", "mtia_ccp_events", "xpu_runtime", "hpu_op", "privateuse1_driver"])
def test_another_accelerator_is_not_taken_for_a_cpu(category, capsys):
    write(*iteration(0.0), event("launch", 20.0, cat=category, correlation=1))
    said = refusal(capsys, "profile", "trace=trace.json")
    assert f"was recorded on {category.partition('_')[0].upper()} devices" in said


def test_a_trace_of_gpus_without_their_kernels_is_not_taken_for_a_cpu(capsys):
    write(*iteration(0.0), event("cudaLaunchKernel", 20.0, cat="cuda_runtime", correlation=1))
    assert "is of GPUs and has none of their kernels" in refusal(capsys, "profile", "trace=trace.json")
    Path("trace.json").write_text(
        json.dumps({"traceEvents": [*iteration(0.0)], "distributedInfo": {"backend": "nccl"}})
    )
    assert "is of GPUs and has none of their kernels" in refusal(capsys, "profile", "trace=trace.json")


@pytest.mark.parametrize(
    ("hardware", "cluster", "other"),
    [
        ("Tesla V100-SXM2-32GB", "64gpu", True),
        ("AMD Instinct MI300X", "64gpu", True),
        ("", "64gpu", True),
        ("NVIDIA A100-SXM4-40GB", "64gpu", False),
        ("NVIDIA A100-PG509-200", "64gpu_40gb", False),
        ("Tesla V100-SXM2-32GB", "micro", False),
        ("NVIDIA RTX A1000", "64gpu", True),
        ("NVIDIA GeForce RTX 2080 Ti", "acpsgd_10gbe", False),
        ("NVIDIA H100 80GB HBM3", "micro", True),
    ],
)
def test_a_profile_of_another_gpu_is_said_in_every_answer(hardware, cluster, other, capsys):
    profile = profile_of_trace(traced("ncclDevKernel_AllReduce", computing=500.0), batch_size=4)
    replace(profile, origin=replace(profile.origin, hardware=hardware)).save("p.json")
    on = hardware or "a GPU that it does not name"
    for words in (["advise"], ["simulate", "scheme=ddp"], ["simulate", "scheme=ddp,wfbp"], ["plan", "scheme=ddp"]):
        out = " ".join(output(capsys, *words, "profile=p.json", f"cluster={cluster}").split())
        assert (f"beware: the profile was measured on {on} and the cluster has" in out) == other
    for words in (["advise"], ["simulate", "scheme=ddp"]):
        assert main([*words, "profile=p.json", f"cluster={cluster}", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["cautions"]) == other
