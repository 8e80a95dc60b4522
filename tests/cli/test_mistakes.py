"""Mistakes that people make, by kind: one line, exit code 2, that says what is meant, or which unit it is in."""

import re
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from ssfx.compressors.base import Compressor
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError, near, unknown
from ssfx.core.plausible import RANGES, plausible
from ssfx.core.spec import Catalog
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.links import full_name, link_kind, link_lines

BOX = ("advise", "model=gpt2", "cluster=box")

MISTAKES = {
    # networks: family, rate and health are never another's
    "cluster.link=roce": "roce_400 (400 Gbit/s, RDMA), roce_200 (200 Gbit/s, RDMA), roce_100 (100 Gbit/s, RDMA)",
    "cluster.link=infiniband": "ib_rdma_400",
    "cluster.link=100gbe": "roce_100 (100 Gbit/s, RDMA), eth_100_tcp (100 Gbit/s, sockets)",
    "cluster.link=roce_50": "there are roce_400, roce_200, roce_100",
    "cluster.link=efa": "efa_400",
    "cluster.link=banana": "ssfx list links",
    "cluster.inside=nvlink9": "there are nvlink5",
    "cluster.inside=nvlink5": "joined by nvlink3, not nvlink5; use nvlink",
    "cluster.inside=infinity_fabric3": "joins AMD's devices",
    "cluster.busbw_gbps=11500": "if these are Mbit/s, write 11.5",
    "cluster.link=0.2": "cluster.inter.gbps=0.2",
    "cluster.inter.latency_ms=20": "'cluster.inter.latency_s', in seconds?",
    "cluster.device=4070": "ssfx list devices",
    "density=1/100": "write 0.01",
    "micro_batches=4": "'accumulate'",
    "tp=8": "drop it",
    "lora=true": "model=FILE.py:FUNCTION",
    "zorro=true": "most used are model, cluster",
    "OPTIMIZER=adamw": "did you mean optimizer=adamw?",
    "optimizer=adamw,": "ends with a comma; write optimizer=adamw",
    "family=cnn": "did you mean 'conv'?",
    "family=llm": "choose one of: conv, lstm, transformer",
    "cluster_iteration_ms=900": "add iteration_ms=",
    # units
    "cluster.inter.gbps=25e9": "if these are bit/s, write 25",
    "cluster.inter.gbps=25000": "if these are Mbit/s, write 25",
    "cluster.inter.gbps=25Gbit": "write 25, without its unit",
    "cluster.inter.gbps=12.5GB/s": "write 100, without its unit",
    "cluster.inter.gbps=1..100": "for several write 1,100",
    "cluster.inter.latency_s=25us": "write 2.5e-05",
    "cluster.inter.latency_s=25": "if these are us, write 2.5e-05",
    "cluster.inter.efficiency=85": "85 % is 0.85",
    "cluster.small_allreduce_us=36000000": "if these are ns",
    "cluster.compressor_call_ms=5000000": "must be in",
    "cluster.message_us=90000000": "must be in",
    "cluster.nics_per_node=800": "must be in [1, 64]",
    "cluster.busbw_gbps=1e9": "must be in",
    "iteration_ms=0.000001": "must be in",
    "iteration_ms=0.25": "if it is in seconds, write 250",
    "iteration_ms=250ms": "iteration_ms=250",
    "iteration_ms=0.3s": "iteration_ms=300",
    "density=1%": "write 0.01",
    "density=10": "10 % is 0.1",
    "density=0,01": "write density=0.01",
    "density=1e-12": "must be in",
    "batch_size=32k": "write 32000",
    "train_steps=10k": "train_steps=10000",
    # keys by other names
    "cluster.gpus_per_node=8": "cluster.devices_per_node",
    "cluster.bandwidth=100": "cluster.inter.gbps",
    "bandwidth=100": "cluster.inter.gbps",
    "cluster.inter.bandwidth=100": "'cluster.inter.gbps'",
    "fusion_degree=3": "'scheme.fusion_degree'",
    "seq_len=2048": "model=FILE.py:FUNCTION",
    "sharding=zero3": "'fsdp'",
    "gpus=8": "cluster.devices_per_node",
    "iteration_s=0.25": "iteration_ms",
    "rank=4": "powersgd(rank=4)",
    "precision=half": "'fp16'",
    "precision=fp8": "bf16, fp16, fp32, tf32",
    "cluster.device=tpuv4": "ssfx list devices",
    # keys by a word that they are made of
    "per_gpu_batch_size=4": "'batch_size'",
    "num_hidden_layers=24": "model=FILE.py:FUNCTION",
    "zeroStage=3": "sharding=fsdp",
    "nnodes=4": "'cluster.nodes'",
    "gradient_checkpointing=true": "iteration_ms",
    "cluster.inter.ping_ms=20": "'cluster.inter.latency_s', in seconds",
    "cluster.rdma=true": "'cluster.link'",
    "cluster.colour=red": "most used are nodes, devices_per_node",
    "steps=500": "write train_steps=500",
    "task=instruct": "did you mean task=fine-tuning?",
    # what would change the arithmetic, or be taken in silence
    "cluster.link=nvlink": "joins devices of one node",
    "cluster.inside=pcie5": "have pcie4_peer",
    "cluster.device=H100-PCIe": "h100 is NVIDIA H100 80GB SXM, which is faster",
    "cluster.inside=nvlink-c2c": "cluster.intra.gbps=10",
    "cluster.device=nvidia": "write which one, as h100 or rtx4090",
    "cluster.nodes=2,2": "has 2 twice",
    "batch_size=64,000": "write batch_size=64000",
    "batch_size=auto": "drop it for the usual value",
    "density=.5%": "write 0.005",
    "cluster.device=v100-sxm2-16gb": "nearest is v100, of 32 GB",
    "cluster.devices=8": "cluster.devices_per_node",
    "cluster.device=3090ti": "rtx3090, the NVIDIA GeForce RTX 3090",
    "cluster.link=1e10": "cluster.link=eth_10_tcp cluster.inter.gbps=10",
    "cluster.device=a100_foo": "or describe yours",
    "cluster.device_count=8": "cluster.devices_per_node",
    "cluster.link=100GB/s": "cluster.inter.gbps=800",
    "cluster.link=2x100gbit": "cluster.inter.gbps=100 cluster.nics_per_node=2",
    "density=100x": "write 0.01",
    "density=1:100": "write 0.01",
    "num_workers=4": "drop it",
    "gpus=32": "world_size, or cluster.nodes",
    "k=1000": "k over all parameters",
    "epochs=2": "of which an epoch has",
    "max_steps=500": "'train_steps'",
    "overlap=false": "write ssfx simulate scheme=NAME with 'scheme.overlap'",
    "compression=topk": "write ssfx simulate scheme=NAME with scheme=topk",
    "net=gpt2": "did you mean model=gpt2?",
    "dtype=fp16": "'precision'",
    "device=h100": "cluster.device=h100",
    "precision=mixed": "'bf16, or fp16'",
    # shapes of words
    "density=0.1;precision=bf16": "is several words; write density=0.1 precision=bf16",
    '{"density":0.1}': "write density=0.1",
    "model=a.py:f()": "write model=a.py:f",
    "density='0.1": "has a quote that is not closed",
    "density==0.1": "has = twice; write density=0.1",
    "density:0.1": "Write density=0.1",
    "--density=0.01": "write density=0.01",
    "density": "did you mean density=...?",
    "density=": "density has no value",
    "optimizer=adamw precision=bf16": "several words in one pair of quotes",
    "scheme=ddp": "compare some with ssfx simulate",
}
OTHERS = {
    "advise model=gpt2 cluster=~/mine.yaml": "~ is left as it is",
    "advise model=gpt2 cluster=p3dn.24xlarge": "cluster.device=v100 cluster.link=eth_100_tcp",
    "advise model=gpt2 cluster=g5.48xlarge": "cluster.devices_per_node=8 cluster.inside=pcie cluster.device=a10g",
    "advise model=gpt2 cluster=4nodes_8gpus_40gbe": "cluster.nodes=4 cluster.devices_per_node=8 cluster.device=a100",
    "advise model=gpt2 cluster=2x8xA100-80GB": "cluster.inside=pcie cluster.link=25gbe_tcp; SXM",
    "advise model=gpt2 cluster=16x_v100_10gbe": "cluster.device=v100 cluster.inside=pcie cluster.link=eth_10_tcp",
    "advise model=gpt2 cluster=4xV100-16GB": "v100 has 32 GB",
    "advise model=64gpu": "which is a cluster; write cluster=64gpu",
    "explain model=gpt2": "write ssfx advise model=gpt2",
    "simulate model=gpt2 cluster=64gpu scheme=per_tensor compressor=none": "'null'",
    "advise model=gpt2 cluster=dgx-a100": "cluster.device=a100 cluster.link=ib_rdma_200",
    "advise model=gpt2 cluster=4x8xH100-IB": "cluster.nodes=4 cluster.devices_per_node=8 cluster.device=h100",
    "advise model=gpt2 cluster=32xA100@40G": "cluster.inside=pcie cluster.link=eth_40_tcp; SXM",
    "advise model=ViT-B/16 cluster=64gpu": "of its kind, in other sizes, there are vit_large",
    "advise model=gpt2 cluster=64gpu --quiet": "2> /dev/null",
    "advise -m gpt2 -c 64gpu": "write model=gpt2 cluster=64gpu",
    "advise model=gpt2 --plot=a.png": "write --plot alone",
    "--model gpt2 --cluster 64gpu": "write ssfx advise model=gpt2 cluster=64gpu",
    "model=gpt2 cluster=64gpu": "write ssfx advise model=gpt2 cluster=64gpu",
    "simulate model=gpt2 cluster=64gpu scheme=ddp+topk": "write scheme=ddp,topk",
    "simulate model=gpt2 cluster=64gpu scheme=topk_1%": "write scheme=topk density=0.01",
    "simulate model=gpt2 cluster=64gpu scheme=powersgd_rank2": "scheme=powersgd 'compressor=powersgd(rank=2)'",
    "simulate model=gpt2 cluster=64gpu scheme=qsgd_4bit": "scheme=per_tensor 'compressor=qsgd(bits=4)'",
    "simulate model=gpt2 cluster=64gpu scheme=1bit-adam": "nearest by what is sent: write scheme=ddp_quantized",
    "simulate model=gpt2 cluster=64gpu scheme=localsgd": "write scheme=local_sgd",
    "simulate model=gpt2 cluster=64gpu scheme=fedavg": "write scheme=local_sgd",
    "simulate model=gpt2 cluster=64gpu scheme=hierarchical(fp16)": "scheme=hierarchical compressor=fp16",
    "simulate model=gpt2 cluster=64gpu scheme=per_tensor compressor=topk(0.01)": "density=0.01",
    "simulate model=gpt2 cluster=64gpu scheme=per_tensor compressor=qsgd4": "'compressor=qsgd(bits=4)'",
    "run output_dir=out": "write SSFX_RESULTS=DIR before the command",
    "run --ntasks-per-node=4": "write cluster.devices_per_node=4",
    "simulate model=gpt2 cluster=64gpu scheme=powersgd(4)": "as rank=4",
    "calibrate": "'doctor, with --gpu it measures'",
    "init": "advise, which needs no set-up",
    "models": "'list models'",
    "frobnicate": "there are advise, simulate, plan",
    "list optimisers": "optimizer=sgd",
    "profile model=gpt2-medium --on h100": "nearest by size: gpt2_large",
    "advise train.py": "did you mean model=train.py:FUNCTION?",
    "advise model=swin_tiny cluster=64gpu": "of its kind, in other sizes, there are vit_large (0.3 B)",
    "advise model=whisper_base cluster=64gpu": "of its kind, in other sizes, there are whisper_large",
    "advise model=nosuch cluster=64gpu": "no name here is like it; or count your own",
    "advise model=gpt2 cluster=100gbe": "which is a link; write cluster=box",
    "advise model=gpt2 cluster=tpu_v4": "data sheets of GPUs alone",
    "advise model=gpt2 cluster=ours-h200": "cluster.device=h200 cluster.inside=nvlink",
    "advise model=gpt2 cluster=emulated_3x1gbit": "emulated ones are emulated_2x100mbit",
    "advise model=gpt2 cluster=128": "16 machines of 8",
    "advise model=gpt2 cluster=three_nodes": "cluster.nodes=3",
    "simulate model=gpt2 cluster=64gpu scheme=ternary": "scheme=per_tensor 'compressor=qsgd(bits=2,norm=max)'",
    "simulate model=gpt2 cluster=64gpu scheme=zzz": "there are ddp_fp16, ddp_quantized of fewer bits",
    "simulate model=gpt2 cluster=64gpu scheme=lion": "it is an optimizer, no exchange",
    "simulate model=gpt2 cluster=64gpu scheme=per_tensor compressor=zzz": "there are fp16, fp8, qsgd of fewer bits",
    "simulate model=gpt2 cluster=64gpu scheme=per_tensor 'compressor=dgc(ratio=0.002)'": "density=0.002, a key of its",
    "run --dry-run memory=error_feedback": "'residual'",
    "run --dry-run experiment=exp3": "'breakdown'",
    "run --dry-run dataset=svhn": "there are digits, cifar10",
    "run --dry-run exempt=norms": "write exempt=[norms]",
    "simulate model=gpt2 --trace": "requires an argument",
    "simulate model=gpt2 --gant": "it takes --config-dir",
    "profile gpt2 --device h100": "did you mean --on?",
    "cluster import": "needs FILE",
    "list dgc": "'compressors dgc'",
    "list runs": "ssfx status",
    "tune": "'advise'",
    "advise model=gpt2 cluster=box iteration_ms=250 cluster_iteration_ms=200": "none can be shortened",
    "advise model=gpt2 cluster=box --html a.html": "did you mean --page?",
    "advise model=gpt2 cluster=box --verbose": "did you mean --why?",
    "advise model=gpt2 cluster=box --output a.json": "did you mean --json > FILE?",
    "advise model=gpt2 cluster=slurm": "engine=slurm",
    "advise model=gpt2 cluster=aws": "'aws_p5'",
    "advise model=yolov8 cluster=box": "count your own: model=FILE.py:FUNCTION",
    "doctor gpu": "did you mean --gpu?",
    "status ssfusion": "it takes --claims",
    "doctor --gpus": "did you mean --gpu?",
    "figures --only fig16": "no option --only; it takes --out, ",
    "run scheme=ddp_int8": "write scheme=ddp_quantized",
    "advise": "ssfx advise model=bert_large cluster=64gpu",
    "advise cluster=64gpu": "ssfx advise model=bert_large cluster=64gpu",
    "advise model=gpt2 cluster=64gpu train_steps=-5": "train_steps=10000",
    "advise model=gpt2 cluster=64gpu compiled=true": "'cluster.host_us=0'",
    "simulate model=gpt2 cluster=64gpu scheme=ddp bucket_cap_mb=50": "'scheme.bucket_cap_bytes'",
    "show --trace mine.json": "ssfx profile trace=mine.json",
    "advise model=mine.py cluster=64gpu": "mine.py:FUNCTION",
    "advise model=BERT-Large cluster=64gpu": "'bert_large'",
    "advise model=mask_rcnn cluster=64gpu": "mask_rcnn has no profile to plan or simulate by: the boxes it finds",
    "plan model=mask_rcnn cluster=64gpu scheme=ddp": "ssfx run model=mask_rcnn trains it on synthetic boxes",
    "simulate model=mask_rcnn cluster=64gpu scheme=ddp": "ssfx run model=mask_rcnn trains it on synthetic boxes",
    "advise model=gpt2 cluster=64gpu --json --plot": "--json draws nothing: drop --json, or --plot",
    "advise model=gpt2 cluster=64gpu --json --page a.html": "--json draws nothing: drop --json, or --page",
    "advise model=notes.txt:f cluster=64gpu": "notes.txt is no Python file; write path/to/file.py:function",
    "advise model=gpt2_small cluster=64gpu": "'gpt2'",
    "advise model=meta-llama/Llama-3.1-8B cluster=64gpu": "llama3_8b",
    "advise model=resnet_51 cluster=64gpu": "resnet50",
    "advise model=gpt2 cluster=64GPU": "'64gpu'",
    "advise model=gpt2 cluster=own_units": "own_units.yaml",
    "advise profile=own_units.yaml cluster=box": "is it cluster=own_units.yaml?",
    "advise profile=train.py cluster=box": "is it model=train.py:FUNCTION?",
    "advise profile=notes.csv cluster=box": "ssfx profile FILE.py:FUNCTION writes one",
    "advise model=gpt2 cluster=4x8xh100": "cluster.nodes=4 cluster.devices_per_node=8 cluster.device=h100",
    "advise model=gpt2 cluster=half.yaml": "begin it with the line defaults: [box, _self_]",
    "advise model=train.py:gone cluster=box": "choose one of: build_model\n",
    "profile train.py:gone on=a100": "write --on a100",
    "profile train.py:build_model --on a100": "returns a NoneType\n",
    "profile trace=mine.json": "has no traceEvents",
    "profile trace=notes.txt": "record whole iterations",
    "advise profile=mine.json model=gpt2 cluster=box": "drop model=, or profile=",
    "advise model=gpt2 cluster=own_units.yaml": "if these are Mbit/s, write 25",
    "simulate model=gpt2 cluster=box scheme=[ddp,topk]": "write scheme=ddp,topk",
    "simulate model=gpt2 cluster=box scheme=per_tensor 'compressor=topk(k=5)'": "density=0.01",
    "simulate --plugin notes.txt model=gpt2 cluster=box": "is no Python",
    "simulate --plugin gone.py model=gpt2 cluster=box": "there is no file",
    "run device=gpu": "'cuda'",
    "run experiment=fig11": "'throughput'",
    "run experiment=ssfusion.fig12": "'long_quality'",
    "run engine=mpi": "'torchrun'",
    "plan model=gpt2 scheme=dgc": "scheme=per_tensor compressor=dgc",
    "profile": "say what to measure",
    "help": "'--help'",
    "version": "'--version'",
    "attach": "in your script",
    "recommend": "'advise'",
    "list gpus": "'devices'",
    "list networks": "'links'",
    "cluster list": "'ssfx list clusters'",
    "cluster shwo 64gpu": "'show'",
    "cancel nothing": "nothing was submitted",
    "show ddp dpp": "did you mean ddp?",
    "figures 12": "ssfusion.fig12",
}
UNITS = "summary: x\nnodes: 2\ndevices_per_node: 8\ndevice: a100\nnics_per_node: 1\nintra: {link: pcie}\nsource: me\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))
    inter = "inter: {gbps: 25000, efficiency: 0.8, latency_s: 2e-5}\ncalibration: nominal\n"
    for name, text in {
        "own_units.yaml": UNITS + inter,
        "mine.json": "{}",
        "notes.txt": "x",
        "half.yaml": "nodes: 4\n",
        "train.py": "import torch\n\ndef build_model():\n    pass\n",
    }.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(("word", "said"), MISTAKES.items())
def test_a_word_that_cannot_be_meant_is_answered_with_what_is(word, said, capsys):
    assert said in refusal(capsys, *BOX, word)


@pytest.mark.parametrize(("words", "said"), OTHERS.items())
def test_a_command_that_cannot_be_meant_is_answered_with_what_is(words, said, capsys, monkeypatch):
    monkeypatch.delenv("SSFX_PLUGINS", raising=False)
    assert said in refusal(capsys, *(word.strip("'") for word in words.split()))


def test_a_file_that_continues_another_and_names_a_kind_of_link_has_its_numbers():
    Path("mine.yaml").write_text("defaults: [box, _self_]\ninter: {link: roce_100}\n")
    assert cluster_on(ClusterChoice("mine.yaml"), 16, "auto").inter.gbps == 100


def test_a_component_that_leaves_something_open_is_refused_and_says_what():
    class Half(Compressor):
        name, summary, source = "half_done", "half of one", "nobody"

    catalog: Any = Catalog("compressor", "ssfx.compressors")
    catalog.register()(Half)
    with pytest.raises(ConfigError, match=r"compressor half_done has no .*decompress_add.*Half must define"):
        catalog.build("half_done")


@pytest.mark.parametrize(
    ("said", "meant"),
    {
        "100gbe_roce": "roce_100",
        "rocev2_200": "roce_200",
        "hdr": "ib_rdma_200",
        "infiniband_100": "ib_rdma_100",
        "10g": "eth_10_tcp",
        "25gbe_tcp": "eth_25_tcp",
        "nvswitch": "nvlink",
        "nvlink3.0": "nvlink3",
        "hdr ipoib": "ib_tcp_200",
        "ipoib_100": "ib_tcp_100",
        "100gbe_tcp_plugin": "eth_100_tcp",
        "eth_100_sockets_untuned": "eth_100_tcp_untuned",
        "roce_acs": "roce_acs_200",
        "xgmi": "infinity_fabric3",
        "pci": "pcie",
        "slingshot": "slingshot_200",
        "400G-IB": "ib_rdma_400",
    }.items(),
)
def test_words_for_networks_are_one_kind(said, meant):
    assert full_name(said) == meant


def test_no_word_means_a_kind_of_another_rate_and_every_kind_is_its_own():
    for name, gbps, *_ in link_lines():
        assert full_name(name) == name
        assert f"{link_kind(name)['gbps']:g}" == gbps
        assert all("_acs_" not in one and "host" not in one for one in [full_name(re.sub(r"_(acs|host)", "", name))])


def test_a_name_with_other_numbers_is_never_proposed_for_its_spelling():
    assert near("fp8", ["fp32", "fp16"]) == []
    assert near("fig99", ["fig9"]) == ["fig9"]  # one begins with the other
    assert near("RESNET-50", ["resnet50", "resnet50_cifar10"]) == ["resnet50"]
    assert "ssfx list models has all" in str(unknown("model", "zzz", [f"m{i}x" for i in range(20)]))


@pytest.mark.parametrize("name", RANGES)
def test_numbers_beyond_what_hardware_has_are_refused_with_the_unit_that_they_may_be_in(name):
    one = RANGES[name]
    for value in (one.least, one.most):
        plausible(name, value)
    for unit, factor in one.others:
        value = 1.01 * one.most if factor < 1 else one.least / 1.01 / factor
        if one.least <= factor * value <= one.most and not one.least <= value <= one.most:
            with pytest.raises(Exception, match=re.escape(f"if these are {unit}, write")):
                plausible(name, value)
    with pytest.raises(Exception, match="must be in"):
        plausible(name, float("nan"))
