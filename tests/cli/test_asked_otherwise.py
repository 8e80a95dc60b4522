"""Words that people write for a device, a model or a cluster work, or are answered with the ones that do."""

from dataclasses import asdict, fields
from pathlib import Path

import pytest
from refusals import refusal

from ssfx.cli import main
from ssfx.config.compose import compose
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.typed import typed
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.devices import Device, device
from ssfx.perf_model.links import link_kind
from ssfx.perf_model.target import profile_for
from ssfx.planning.profile import Profile

MODEL = """
import torch
from torch import nn

def build_model():
    return nn.Linear(8, 300), torch.randn(6, 8)
"""
DEVICE = """
title: Mine 3000
conv_flops: 1.0e14
matmul_flops: 5e13
memory_bytes_s: 1e12
memory_gib: 48
pcie_gbps: 252
tensor_flops: {bf16: 2e14}
"""
BOX = ["cluster=box", "cluster.nodes=2", "cluster.devices_per_node=2"]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "mine.yaml").write_text(DEVICE)
    monkeypatch.chdir(tmp_path)


def test_model_is_function_is_counted_as_the_function_alone_is():
    for words in (
        ["model=mine.py:build_model"],
        ["mine.py:build_model"],
        ["optimizer=sgd", "model=mine.py:build_model"],
    ):
        assert main(["profile", *words, "--on", "H100", "--out", "p.json"]) == 0
        found = Profile.from_json(Path("p.json").read_text())
        assert (found.device, len(found.tensors)) == ("h100", 2)
        Path("p.json").unlink()


@pytest.mark.parametrize("words", [["gpt2_large"], ["model=gpt2_large", "precision=bf16", "batch_size=4"]])
def test_a_model_of_the_catalogue_is_counted_for_a_device_and_takes_what_simulations_take(words):
    assert main(["profile", *words, "--on", "h100", "--out", "p.json"]) == 0
    found = Profile.from_json(Path("p.json").read_text())
    cluster = cluster_of(compose({"cluster": "box", "cluster.device": "h100"})["cluster"], None, "auto")
    same = profile_for("gpt2_large", cluster, found.batch_size, "adamw", found.precision)
    assert (found.forward_s, found.ready_gap_s, found.step_s) == (same.forward_s, same.ready_gap_s, same.step_s)
    assert main(["simulate", "profile=p.json", "scheme=ddp", *BOX, "cluster.device=H100"]) == 0


def test_a_file_without_its_function_is_answered_with_how_to_name_it(capsys):
    assert "name its function that returns (model, batch): mine.py:FUNCTION" in refusal(capsys, "profile", "mine.py")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("H100", "h100"),
        ("RTX-3090", "rtx3090"),
        ("A100_40GB", "a100_40gb"),
        ("NVIDIA A10G", "a10g"),
        ("l4", "l4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla V100-SXM2-32GB", "v100"),
    ],
)
def test_devices_are_known_in_any_case_and_by_the_names_of_their_makers(said, meant):
    assert device(said).name == meant


def test_an_own_device_is_a_file(capsys):
    assert main(["profile", "mine.py:build_model", "--on", "mine.yaml", "precision=bf16", "--out", "p.json"]) == 0
    assert "Mine 3000" in capsys.readouterr().out
    assert main(["simulate", "profile=p.json", "scheme=ddp", *BOX, "cluster.device=mine.yaml"]) == 0
    assert main(["simulate", "model=resnet50", "scheme=ddp", *BOX, "cluster.device=mine.yaml"]) == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("conv_flopz: 1", "did you mean 'conv_flops'"),
        ("title: x", "has no conv_flops"),
        (DEVICE.replace("48", "much"), "memory_gib must be of type float, got 'much'"),
        (DEVICE.replace("bf16", "bf61"), "under tensor_flops: unknown key 'bf61'"),
        (DEVICE.replace("252", "-1"), "must be in [0, 10000]"),
    ],
)
def test_a_file_that_describes_no_device_is_refused(wrong, why):
    Path("wrong.yaml").write_text(wrong)
    with pytest.raises(ConfigError, match=r"wrong\.yaml") as error:
        device("wrong.yaml")
    assert why in str(error.value)


WRONG_VALUES = ("[a, 2]", "{a: 1}", "true", "null", "x", "-0.5", "1e300", ".nan", "2026-01-01")


@pytest.mark.parametrize("value", WRONG_VALUES)
@pytest.mark.parametrize("key", [one.name for one in fields(Device)] + ["tensor_flops.bf16", "inside.pcie"])
def test_a_value_of_any_type_in_a_device_file_is_used_or_refused_in_one_line(key, value):
    outer, _, inner = key.partition(".")
    kept = [line for line in DEVICE.splitlines() if not line.startswith(f"{outer}:")]
    Path("odd.yaml").write_text("\n".join([*kept, f"{outer}: {{{inner}: {value}}}" if inner else f"{outer}: {value}"]))
    said = ""
    try:
        found = device("odd.yaml")
        assert all(found.at(precision).efficiency for precision in found.tensor_flops)
        assert found.title.upper()
        assert all(link_kind(family, on="odd.yaml")["gbps"] for family in found.inside)
        typed(Device, asdict(found))
    except ConfigError as error:
        said = str(error)
    assert "\n" not in said


def test_lists_of_names_end_after_ten():
    said = str(unknown("word", "zzzz", [f"a{i}" for i in range(14)]))
    assert said.endswith("a5, and 4 more")
    assert "more" not in str(unknown("word", "zzzz", [f"a{i}" for i in range(10)]))


def test_words_of_clusters_are_answered_with_theirs(capsys):
    ask = ("advise", "model=resnet50")
    assert "did you mean 'cluster.nodes'?" in refusal(capsys, *ask, "cluster=box", "nodes=8")
    assert "did you mean 'cluster.link'?" in refusal(capsys, *ask, "cluster=box", "link=25gbe_tcp")
    said = refusal(capsys, *ask, "cluster=8xh100")
    assert "cluster=box cluster.nodes=1 cluster.devices_per_node=8 cluster.device=h100" in said
    assert len(said) < 300
    assert "did you mean" not in said  # a cluster of other devices
