"""Machines, links and models that people name in 2026: known, or answered with the nearest by numbers."""

import pytest

from ssfx.config.advice_question import resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.perf_model.devices import device, device_names

DEVICES = ["gb200", "b300", "h800", "h20", "mi355x", "mi250x", "t4", "a6000", "rtx6000_ada", "rtx_pro_6000", "gb10"]
BOX = "model=gpt2 cluster=box "
ANSWERS = {
    f"{BOX}cluster.device=gaudi3": "unknown device 'gaudi3'; write the nearest by numbers, ssfx list devices has all",
    f"{BOX}cluster.device=h201": "write the nearest by numbers",
    f"{BOX}cluster.device=gtx4090": "did you mean 'rtx4090'?",
    f"{BOX}cluster.device=rtx6000": "did you mean 'rtx6000_ada'",
    f"{BOX}cluster.link=gigabit": "nearest by numbers: cluster.link=eth_1_tcp",
    f"{BOX}cluster.link=100mbit": "cluster.link=eth_1_tcp cluster.inter.gbps=0.1",
    f"{BOX}cluster.link=2.5GbE": "cluster.link=eth_1_tcp cluster.inter.gbps=2.5",
    f"{BOX}cluster.link=wifi": "cluster.inter.latency_s=0.003",
    f"{BOX}cluster.link=tailscale": "cluster.inter.gbps=0.1 cluster.inter.latency_s=0.02",
    f"{BOX}cluster.link=thunderbolt4": "cluster.link=eth_10_tcp cluster.inter.gbps=20",
    f"{BOX}cluster.link=xdr": "cluster.link=ib_rdma_400 cluster.inter.gbps=800",
    f"{BOX}cluster.link=ConnectX-7": "cluster.link=ib_rdma_400",
    f"{BOX}cluster.link=spectrum-x": "cluster.link=roce_400",
    f"{BOX}cluster.link=efav3": "cluster.link=efa_400",
    f"{BOX}cluster.link=gpudirect-tcpxo": "cluster.link=eth_100_tcp cluster.inter.gbps=200",
    f"{BOX}cluster.link=carrier_pigeon": "cluster.inter.gbps=10 cluster.inter.latency_s=0.00005",
    "model=gpt2 cluster=p5.48xlarge": "did you mean 'aws_p5'?",
    "model=gpt2 cluster=a3-mega": "did you mean 'gcp_a3_mega'?",
    "model=gpt2 cluster=p4d.24xlarge": "cluster.device=a100_40gb cluster.link=efa_100",
    "model=gpt2 cluster=gb200_nvl72": "cluster.devices_per_node=72",
    "model=gpt2 cluster=DGX-H100": "cluster.device=h100 cluster.link=ib_rdma_400",
    "model=gpt2 cluster=h100": "cluster.device=h100 cluster.inside=nvlink",
    "model=gpt2 cluster=rtx4090": "cluster.device=rtx4090 cluster.inside=pcie",
    "model=gpt2 cluster=2x4090": "cluster.devices_per_node=2 cluster.device=rtx4090 cluster.inside=pcie, or as many",
    "model=gpt2 cluster=two-3090s": "cluster.device=rtx3090",
    "model=gpt2 cluster=8xH100-SXM": "cluster.devices_per_node=8 cluster.device=h100 cluster.inside=nvlink",
    "model=gpt2 cluster=4x8xa100": "cluster.nodes=4 cluster.devices_per_node=8 cluster.device=a100",
    "model=gpt2 cluster=g5.12xlarge": "cluster.device=a10g cluster.link=eth_40_tcp",
    "model=stable_diffusion cluster=box": "nearest by size: dit_xl",
    "model=gpt2 cluster=home": "cluster.device=rtx4090 cluster.link=eth_1_tcp",
    "model=gpt2 cluster=128gpu": "16 machines of 8 write cluster=box cluster.nodes=16",
    "model=gpt2 cluster=mycluster": "to describe yours write cluster=box",
    "model=llama3_70b cluster=box": "none here is near its 70 B",
    "model=gpt2-medium cluster=box": "nearest by size: gpt2_large",
    "model=mixtral_8x7b cluster=box": "nearest by size: qwen3_30b_a3b",
    "model=deepseek_v3 cluster=box": "count your own: model=FILE.py:FUNCTION",
    "model=t5_large cluster=box": "nearest by size: bert_large",
    "model=7B cluster=box": "nearest by size: llama3_8b",
    "model=124M cluster=box": "nearest by size: gpt2 (0.124 B)",
}


@pytest.mark.parametrize("words", ANSWERS)
def test_a_word_of_2026_is_answered_with_what_to_write(words):
    with pytest.raises(ConfigError) as found:
        resolve_setting(words.split())
    said = str(found.value)
    assert ANSWERS[words] in said
    assert "16gpu, 32gpu" not in said
    remedy = said.partition("nearest by numbers: ")[2].split("; ")[0]
    if "cluster" in remedy:  # it works as it is printed
        resolve_setting(["model=gpt2", *(() if "cluster=box" in remedy else ("cluster=box",)), *remedy.split()])


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_of_2026_has_a_sheet_with_its_source(name):
    found = device(name)
    assert "data sheet" in found.source + found.tensor_source or "white paper" in found.source
    assert resolve_setting(f"{BOX}cluster.device={name}".split()).cluster.device == name


def test_no_remedy_for_a_device_has_other_digits():
    for name in device_names():
        other = name.translate(str.maketrans("0123456789", "1234567890"))
        if other != name and other not in device_names():
            with pytest.raises(ConfigError, match="unknown device"):
                device(other)
