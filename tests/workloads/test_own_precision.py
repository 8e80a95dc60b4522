"""An own model counted in a precision: asked for, in regions of autocast, or of its weights."""

from pathlib import Path

import pytest
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core.errors import ConfigError
from ssfx.lab.workloads.own_batch import counted_batch
from ssfx.perf_model.roofline import analytic_profile
from ssfx.perf_model.saved_profiles import saved_profile
from ssfx.planning.profile import Profile

CODE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

REGION = torch.autocast("cuda", dtype=torch.bfloat16)

def build_model():
    tokens = torch.zeros(8, 1024, dtype=torch.long, device="meta")
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config())
    model.tie_weights()
    return model, {"input_ids": tokens, "labels": tokens}

def in_region():
    def loss(net, batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return net(**batch).loss
    return *build_model(), loss

def in_a_region_of_the_file():
    def loss(net, batch):
        with REGION:
            return net(**batch).loss
    return *build_model(), loss

def switched_off():
    def loss(net, batch):
        with REGION, torch.amp.autocast("cuda", enabled=False):
            return net(**batch).loss
    return *build_model(), loss

def of_16_bits():
    model, batch = build_model()
    return model.bfloat16(), batch
"""


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)


def times(profile):
    return pytest.approx((profile.forward_s, profile.backward_s), rel=0.02)


def counted(function, precision="fp32", on="h100"):
    return counted_batch(f"mine.py:{function}", on, precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16", "fp8"])
def test_an_own_gpt_takes_what_the_one_of_the_catalogue_takes(precision):
    found, known = counted("build_model", precision), analytic_profile("gpt2", "h100", 8, precision)
    assert (len(found.tensors), sum(found.numel)) == (148, 124_439_808)
    assert (found.forward_s, found.backward_s) == times(known)
    assert found.precision == precision


@pytest.mark.parametrize(
    ("function", "as_in"), [("in_region", "bf16"), ("in_a_region_of_the_file", "bf16"), ("switched_off", "fp32")]
)
def test_regions_of_autocast_count_as_the_code_has_them(function, as_in):
    found, known = counted(function), analytic_profile("gpt2", "h100", 8, as_in)
    assert (found.forward_s, found.backward_s) == times(known)
    assert f"{as_in} where the model says so" in found.origin.note


def test_weights_of_16_bits_send_and_compute_16_bits():
    found, fast = counted("of_16_bits"), analytic_profile("gpt2", "h100", 8, "bf16")
    assert {spec.dtype for spec in found.tensors} == {"bfloat16"}
    assert found.forward_s == pytest.approx(fast.forward_s, rel=0.15)  # its loss is computed from logits in float32
    assert found.step_s < 0.6 * counted("build_model").step_s


@pytest.mark.nightly
def test_a_counted_profile_is_asked_about_in_every_precision_of_its_device(capsys):
    assert main(["profile", "mine.py:build_model", "--on", "h100", "precision=bf16", "--out", "b.json"]) == 0
    counted("build_model").save("f.json")
    fast = Profile.from_json(Path("b.json").read_text())
    assert saved_profile("f.json", precision="bf16").forward_s == fast.forward_s == saved_profile("b.json").forward_s
    assert saved_profile("f.json", precision="fp16").precision == "fp16"
    capsys.readouterr()
    words = ["scheme=ddp", "cluster=box", "cluster.device=h100", "cluster.nodes=2", "cluster.link=25gbe_tcp"]
    assert "in bf16" in output(capsys, "simulate", "profile=f.json", "precision=bf16", *words)


def test_refusals_say_what_is_true(capsys):
    counted("build_model", on="v100").save("v.json")
    with pytest.raises(ConfigError, match="was counted for v100, which does not compute in bf16; use precision=fp32"):
        saved_profile("v.json", precision="bf16")
    assert "or count it with --on DEVICE" in refusal(capsys, "profile", "mine.py:build_model", "precision=bf16")
    assert main(["profile", "mine.py:build_model", "--on", "v100", "precision=bf16"]) == 2
    assert "which device v100 has not; use precision=fp32 or fp16" in capsys.readouterr().err
    assert "did you mean 'bf16'?" in refusal(capsys, "profile", "mine.py:build_model", "--on", "h100", "precision=bf61")
