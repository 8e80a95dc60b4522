"""The table of devices: complete, sourced, and honest about what it assumes."""

from dataclasses import replace

import pytest

from ssfx.core.errors import ConfigError
from ssfx.perf_model.devices import device, device_names


def test_every_device_of_the_papers_is_there():
    assert {"a100", "a100_40gb", "v100", "v100s", "rtx2080ti", "rtx3090", "h100", "cpu"} <= set(device_names())


@pytest.mark.parametrize("name", device_names())
def test_a_device_says_where_its_numbers_come_from(name):
    found = device(name)
    assert found.name == name
    assert found.source
    assert "float32" in found.assumption
    assert f"{found.matmul_flops / 1e12:.3g} TFLOP/s in matrix products" in found.efficiency
    assert (found.pcie_gbps == 0) == (name == "cpu")
    assert found.conv_flops >= found.matmul_flops


def test_the_cards_differ_in_what_their_data_sheets_say():
    assert device("a100").memory_gib == 2 * device("a100_40gb").memory_gib
    assert device("a100").conv_flops == 8 * device("a100").matmul_flops  # TF32 against float32
    assert device("v100").conv_flops == device("v100").matmul_flops  # no TF32 before Ampere


WITHOUT = {"p100": "fp32", "cpu": "fp32", "v100": "fp32 or fp16", "v100s": "fp32 or fp16", "rtx2080ti": "fp32 or fp16"}
WITHOUT |= {"t4": "fp32 or fp16", "mi250x": "fp32 or bf16 or fp16", "mi355x": "fp32 or bf16 or fp16 or fp8"}


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("name", device_names())
def test_a_precision_is_never_slower_than_float32_or_refused(name, precision):
    plain = device(name)
    if precision not in plain.tensor_flops:
        with pytest.raises(ConfigError, match=f"device {name} has not; use precision={WITHOUT[name]}$"):
            plain.at(precision)
        return
    found = plain.at(precision)
    assert found.conv_flops * found.conv_efficiency >= plain.conv_flops * plain.conv_efficiency
    assert found.matmul_flops * found.matmul_efficiency >= plain.matmul_flops * plain.matmul_efficiency
    assert found.conv_flops == found.matmul_flops == plain.tensor_flops[precision]
    assert found.activation_bytes == (4 if precision == "tf32" else 2)
    assert plain.tensor_source in found.source
    assert f"precision={precision}" in found.assumption
    assert plain.at("fp32") == plain


def test_sixteen_bits_are_twice_as_fast_as_tf32_on_every_device_that_has_both():
    both = [device(name) for name in device_names() if {"tf32", "bf16"} <= set(device(name).tensor_flops)]
    assert {one.name for one in both} == {
        "a100",
        "a100_40gb",
        "rtx3090",
        "rtx4090",
        "rtx5090",
        "l40s",
        "h100",
        "h200",
        "b200",
        "a10g",
        "l4",
        "mi300x",
        "gb200",
        "b300",
        "h800",
        "h20",
        "a6000",
        "rtx6000_ada",
        "rtx_pro_6000",
        "gb10",
    }
    for one in both:
        assert one.tensor_flops["bf16"] == one.tensor_flops["fp16"]
        assert one.tensor_flops["bf16"] == pytest.approx(2 * one.tensor_flops["tf32"], rel=0.03)


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown device 'a10'; did you mean 'a10g'"):
        device("a10")


@pytest.mark.parametrize("wrong", [{"conv_efficiency": 1.1}, {"memory_gib": 0}, {"launch_s": -1e-6}])
def test_impossible_devices_are_refused(wrong):
    with pytest.raises((ValueError, ConfigError), match="device a100"):
        replace(device("a100"), **wrong)
