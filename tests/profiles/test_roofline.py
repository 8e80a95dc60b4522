"""Times from work: the roofline on numbers one can check by hand, and what no device may contradict."""

from copy import copy
from dataclasses import replace

import pytest

from ssfx.core.errors import ConfigError
from ssfx.perf_model.devices import device, device_names
from ssfx.perf_model.operator_counts import counted, model_work
from ssfx.perf_model.roofline import analytic_profile, eager, fewer_by_winograd, launches, row_s, step_s
from ssfx.perf_model.shipped_profiles import load_shipped, measured_profile, profile_on, shipped_dir
from ssfx.planning.profile import Profile

SIMPLE = copy(device("v100"))
"""50 FLOP/s in convolutions, 1 FLOP/s in products, 10 bytes/s, 2 s a kernel: no device, which would be refused."""
for key, value in {
    "conv_flops": 100.0,
    "matmul_flops": 10.0,
    "memory_bytes_s": 40.0,
    "conv_efficiency": 0.5,
    "matmul_efficiency": 0.1,
    "memory_efficiency": 0.25,
    "launch_s": 2.0,
}.items():
    object.__setattr__(SIMPLE, key, value)


@pytest.mark.parametrize(
    ("row", "batch_size", "expected_s"),
    [
        ((3, 0, 0, 0, 0, 0, 0, 0, 0), 7, 6.0),  # three kernels
        ((0, 100, 0, 10, 0, 0, 0, 0, 0), 2, 4.0),  # a convolution that computes longer than it reads
        ((0, 100, 0, 30, 0, 0, 0, 0, 0), 2, 6.0),  # and one that reads longer
        ((0, 0, 5, 0, 20, 0, 0, 10, 0), 1, 5.0),  # a product: 5 s against 20 + 10 bytes
        ((0, 0, 5, 0, 20, 0, 0, 40, 0), 1, 6.0),
        ((0, 0, 0, 0, 0, 10, 0, 0, 5), 4, 4.5),  # elsewhere only bytes count
        ((1, 50, 1, 0, 0, 10, 0, 0, 0), 1, 5.0),  # kinds add up
    ],
)
def test_a_row_takes_the_longer_of_computing_and_moving(row, batch_size, expected_s):
    assert row_s(row, SIMPLE, batch_size) == pytest.approx(expected_s)


@pytest.mark.parametrize("name", counted())
def test_a_profile_is_the_sum_of_its_rows(name):
    work, target = model_work(name), device("rtx3090")
    profile = analytic_profile(name, "rtx3090", 3, host_s=0.0)
    assert profile.tensors == work.tensors
    assert profile.forward_s == pytest.approx(sum(row_s(work.rows[i], target, 3) for i in work.forward), rel=1e-4)
    again = profile.forward_s if work.recompute else 0.0
    backward_s = sum(row_s(work.rows[i], target, 3) for i in work.backward)
    assert profile.backward_s == pytest.approx(backward_s + again, rel=1e-4)
    assert profile.forward_s > 0
    assert profile.backward_s > profile.forward_s or name.endswith("_mini")  # of those, launches are most of it
    assert (profile.batch_size, profile.device, profile.ranks) == (3, "rtx3090", 1)
    assert Profile.from_json(profile.to_json()) == profile


def test_strided_and_narrow_convolutions_take_every_multiplication_and_others_fewer():
    """16 for a tile of 2x2 results in place of 36; a tile at the edge of 7x7 is computed whole."""
    work = model_work("resnet50")
    fewer = dict(zip((spec.name for spec in work.tensors), fewer_by_winograd(work), strict=True))
    assert fewer["layer2.1.conv2.weight"] == pytest.approx(36 / 16)
    assert fewer["layer4.1.conv2.weight"] == pytest.approx(9 * 49 / (16 * 16))
    assert {fewer[f"{layer}.weight"] for layer in ("layer2.0.conv2", "layer2.1.conv1", "conv1", "fc")} == {1.0}
    vgg = model_work("vgg16")
    kinds = dict(zip((spec.name for spec in vgg.tensors), fewer_by_winograd(vgg), strict=True))
    assert (kinds["features.0.weight"], kinds["features.28.bias"]) == (1.0, pytest.approx(36 / 16))


@pytest.mark.parametrize(
    ("on", "model", "batch", "per_s"),
    [
        ("p100", "resnet50", 64, 219),
        ("p100", "resnet152", 64, 91.8),
        ("p100", "vgg16", 64, 154),
        ("rtx2080ti", "resnet50", 64, 294),
        ("rtx2080ti", "resnet152", 32, 110),
        ("v100", "resnet50", 64, 405),
        ("v100", "resnet50", 128, 367.29),
        ("v100", "resnet152", 32, 155),
    ],
)
def test_public_records_of_one_gpu_are_met(on, model, batch, per_s):
    """TensorFlow's benchmarks of May 2017 (P100, with variables on the host), Lambda's of 2018 (lambdalabs.com, 2080 Ti
    and V100), DLPerf's of NVIDIA's PyTorch example (V100, batch 128), all in float32.
    """
    assert analytic_profile(model, on, batch, optimizer="sgd").alone_s() == pytest.approx(batch / per_s, rel=0.2)


@pytest.mark.parametrize("name", device_names())
def test_no_profile_is_faster_than_the_peak_rates_allow(name):
    work, target = model_work("resnet50"), device(name)
    profile = analytic_profile("resnet50", name, 16)
    assert profile.forward_s + profile.backward_s > sum(work.flops(16)) / target.conv_flops


@pytest.mark.parametrize(
    ("model", "field"),
    [("resnet50", "conv_flops"), ("bert_large", "matmul_flops"), ("lstm_650", "matmul_flops")]
    + [(model, "memory_bytes_s") for model in ("resnet50", "bert_large", "lstm_650")],
)
def test_a_faster_device_is_faster_where_that_matters_and_never_slower(model, field):
    slow = device("rtx2080ti")
    fast = replace(slow, **{field: 2 * getattr(slow, field)})
    pairs = [(row_s(row, fast, 8), row_s(row, slow, 8)) for row in model_work(model).rows]
    assert all(after <= before for after, before in pairs)
    assert any(after < before for after, before in pairs)


def test_sixteen_bits_halve_the_bytes_of_activations_alone():
    half = copy(SIMPLE)
    object.__setattr__(half, "activation_bytes", 2)
    assert row_s((0, 0, 0, 0, 0, 10, 0, 0, 5), half, 4) == pytest.approx(2.5)  # 20 + 5 bytes
    assert row_s((0, 0, 5, 0, 20, 0, 0, 40, 0), half, 1) == pytest.approx(5.0)  # 10 + 40 bytes
    assert row_s((3, 100, 0, 10, 0, 0, 0, 0, 0), half, 2) == pytest.approx(10.0)


def test_a_profile_in_sixteen_bits_has_the_same_gradients_in_less_time():
    plain, tf32, bf16, fp16 = (
        analytic_profile("bert_large", "a100", 4, one) for one in ("fp32", "tf32", "bf16", "fp16")
    )
    assert plain.tensors == bf16.tensors
    assert plain.nbytes == bf16.nbytes == 4 * model_work("bert_large").numel
    assert plain.backward_s > tf32.backward_s > bf16.backward_s == fp16.backward_s
    assert plain.step_s == tf32.step_s == bf16.step_s
    gradient_s = 4 * model_work("bert_large").numel / (device("a100").memory_bytes_s * 0.75)
    assert fp16.step_s - bf16.step_s == pytest.approx(2 * gradient_s, rel=1e-6)  # divided by the loss scale
    assert "precision=bf16" in bf16.origin.note
    assert "30% of 312 TFLOP/s in convolutions, 80% of 312 TFLOP/s in matrix products" in bf16.origin.note


def test_a_measured_profile_is_of_float32():
    assert profile_on("resnet_tiny", "cpu").origin.kind == "measured"
    with pytest.raises(ConfigError, match=r"use precision=fp32$"):
        profile_on("resnet_tiny", "cpu", precision="bf16")


def test_a_larger_batch_takes_longer_but_less_per_sample():
    small, large = analytic_profile("bert_large", "a100", 4), analytic_profile("bert_large", "a100", 8)
    assert small.backward_s < large.backward_s < 2 * small.backward_s


def test_the_origin_states_efficiency_and_assumptions():
    origin = analytic_profile("resnet50").origin
    assert origin.kind == "nominal"
    assert "roofline, not measured" in origin.note
    assert device("a100").efficiency in origin.note
    assert "TF32 tensor cores in convolutions" in origin.note
    assert "torch" in origin.versions


HELD = copy(SIMPLE)
object.__setattr__(HELD, "host_s", 2.0)


@pytest.mark.parametrize(
    ("busy", "kernels", "expected"),
    [
        ([3, 5, 1], [1, 2, 0], [3, 5, 1]),  # the host is done after 6 s and runs ahead
        ([1, 1, 1], [2, 3, 0], [3, 6, 1]),  # each part ends with its last kernel, the step in the wait for the next
        ([9, 1, 1], [2, 4, 0], [9, 2, 1]),
    ],
)
def test_no_kernel_runs_before_the_host_issued_it(busy, kernels, expected):
    parts, said = eager(busy, kernels, HELD)
    issued = HELD.host_s * sum(kernels)
    assert sum(parts) == pytest.approx(max(sum(busy), issued))
    assert bool(said) == (issued > sum(busy))
    assert parts == pytest.approx(expected)


def test_an_eager_step_waits_for_its_host_and_a_captured_one_does_not():
    held, free = (analytic_profile("bert_large", "h100", 4, "bf16", host_s=host_s) for host_s in (None, 0.0))
    kernels = sum(launches(model_work("bert_large"), "bf16", again=False))
    assert held.alone_s() == pytest.approx(25e-6 * kernels, rel=1e-6)
    assert (held.host_bound, free.host_bound) == (True, False)
    assert free.alone_s() < held.alone_s()
    assert f"issues {kernels:,.0f} kernels" in held.origin.note
    assert "bound by the host" not in free.origin.note
    assert Profile.from_json(held.to_json()) == held
    slower = analytic_profile("bert_large", "h100", 64, "bf16")
    assert not slower.host_bound  # the device has enough to do
    assert slower.alone_s() == analytic_profile("bert_large", "h100", 64, "bf16", host_s=0.0).alone_s()


def test_casts_and_layouts_are_kernels_of_the_host():
    work = model_work("resnet50")
    plain, half = (sum(launches(work, one, again=False)) for one in ("fp32", "bf16"))
    matrices = sum(len(spec.shape) > 1 for spec in work.tensors)
    assert half - plain == 5 * matrices
    counted_kernels = sum(work.rows[i][0] for i in (*work.forward, *work.backward))
    assert plain - counted_kernels == 4 * sum(len(spec.shape) == 4 for spec in work.tensors)
    assert sum(launches(work, "fp32", again=True)) > plain


def test_an_optimizer_step_moves_what_it_needs():
    work = model_work("resnet50")
    rate = SIMPLE.memory_bytes_s * SIMPLE.memory_efficiency
    assert step_s(work, SIMPLE) == pytest.approx(5 * 4 * work.numel / rate, rel=1e-6)  # sgd, customary here
    assert step_s(work, SIMPLE, "adamw") == pytest.approx(7 * 4 * work.numel / rate, rel=1e-6)
    with pytest.raises(ConfigError, match="unknown optimizer 'adamm'; did you mean"):
        step_s(work, SIMPLE, "adamm")


def test_impossible_requests_are_told():
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        analytic_profile("resnet50", "a100", 0)
    with pytest.raises(ConfigError, match="unknown device"):
        analytic_profile("resnet50", "a101x")


def test_a_shipped_profile_is_measured_where_there_is_one_and_analytic_elsewhere():
    assert load_shipped("resnet_tiny").origin.kind == "measured"
    assert load_shipped("bert_large") == analytic_profile("bert_large", "a100", 4)
    assert measured_profile("bert_large") is None


def test_a_profile_for_a_device_is_measured_only_on_that_device():
    recorded = Profile.from_json((shipped_dir() / "resnet_tiny.json").read_text())
    assert profile_on("resnet_tiny", "cpu") == recorded
    assert profile_on("resnet_tiny", "cpu", recorded.batch_size) == recorded
    assert profile_on("resnet_tiny", "cpu", 7).origin.kind == "nominal"
    assert profile_on("resnet_tiny", "a100").device == "a100"
