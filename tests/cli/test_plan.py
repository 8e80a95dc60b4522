"""`ssfx plan` prints what the plan says, where its numbers come from, and what was extrapolated."""

import json

import pytest
from refusals import output, refusal

from ssfx.cli import main
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.perf_model import compressor_times as codec_times
from ssfx.perf_model.recorded_times import measured_on
from ssfx.planning.plan import Plan
from ssfx.simulator.pricing.message_sizes import plan_bytes


@pytest.fixture
def run_plan(shipped, capsys):
    def run(*words):
        return output(capsys, "plan", *words)

    return run


@pytest.fixture
def uncounted(monkeypatch):
    """Only DGC has times, as if the other compressors were new."""
    known = codec_times._counted()["dgc"]
    monkeypatch.setattr(codec_times, "_counted", lambda: {"dgc": known})


def test_json_is_the_plan(run_plan, shipped):
    plan = Plan.from_json(run_plan("scheme=ddp", "--json"))
    assert plan.scheme == "ddp"
    assert plan.tensors == shipped.tensors
    assert json.loads(plan.to_json())["world_size"] == 2


def test_table_totals_and_origin(run_plan):
    words = ("scheme=per_tensor", "density=0.05", "cluster=64gpu", "cluster.calibration=published")
    plan = Plan.from_json(run_plan(*words, "--json"))
    out = run_plan(*words)
    assert "per_tensor for resnet_tiny on 64gpu, 64 ranks, dgc at density 0.05" in out
    assert f"{len(plan.buckets)} buckets, {len(plan.launch_order)} lanes, 4 tensors, 340,074 elements" in out
    assert f"{plan_bytes(plan) / 2**10:.2f} KiB per rank and step" in out
    assert "predicted F = " in out
    assert "costs: published. compression published: SSFusion (ICDE 2026) Table III" in out
    assert "decoding is nominal" in out
    assert "exchange published: ring and tree formulas, 200 Gbit/s at 0.96" in out
    assert "profile: measured, cpu, batch 32. made up" in out
    assert f"digest {plan.digest}" in out


def test_what_was_measured_names_its_machine(run_plan):
    planned = resolve_plan(["scheme=ssfusion_oi", "cluster=local", "density=0.01"])
    _, profile, costs = plan_of(planned)
    assert costs.origin.hardware
    out = run_plan("scheme=ssfusion_oi", "cluster=local", "density=0.01")
    assert f"costs: measured on {costs.origin.hardware}, {costs.origin.date}. {costs.origin.note}" in out
    assert f"profile: measured, cpu{measured_on(profile.origin)}, batch 32. {profile.origin.note}" in out


def test_nominal_times_say_so(run_plan):
    out = run_plan("scheme=oktopk", "cluster=64gpu", "density=0.01")
    assert "predicted F = " in out
    assert "costs: nominal. compression nominal: calls and bytes of the CUDA path here" in out
    assert "exchange nominal: ring and tree formulas" in out
    assert "published" not in out


def test_a_plan_that_needs_no_costs_is_shown_without_a_time(run_plan, uncounted):
    out = run_plan("scheme=oktopk", "cluster=64gpu", "density=0.01")
    assert "no predicted time: no times for compressor topk on 64gpu; there are some for dgc" in out
    assert "predicted F" not in out
    assert "digest " in out


def test_what_is_sent_and_why_a_group_is_dense_are_shown(run_plan):
    dense = run_plan("scheme=ddp", "cluster=64gpu")
    assert f"{2 * 340_074 * 4 * 63 / 64 / 2**20:.2f} MiB sent in 252 messages" in dense
    out = run_plan("scheme=topk", "cluster=64gpu", "density=0.05")
    assert "all_gather would send" in out
    assert "sent in 252 messages" in out


def test_extrapolated_times_are_told(run_plan):
    out = run_plan("scheme=per_tensor", "cluster=64gpu", "cluster.calibration=published")
    assert "known for 2,500 .. 2,500,000 elements; 2 of 4 segments lie outside" in out
    assert "extrapolated" not in run_plan("scheme=ddp", "cluster=64gpu", "cluster.calibration=published")


def test_a_slower_network_is_predicted_to_take_longer(run_plan):
    def predicted(*words):
        return run_plan("scheme=ddp", "cluster=64gpu", *words).partition("predicted F = ")[2].split()[:2]

    fast, slow = predicted(), predicted("cluster.inter.gbps=1")
    assert fast[1] == slow[1] == "ms"
    assert float(slow[0]) > float(fast[0])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["scheme=cupcake", "compressor=topk", "cluster=64gpu"],
            "no times for compressor topk on 64gpu; there are some for dgc, fp8, onebit(bucket=1024), qsgd: measure it "
            "with ssfx profile compressors, or give a compressor of your own a cost()",
        ),
        (["scheme=ddp", "model=vgg19"], "no profile is shipped for model 'vgg19'; shipped: resnet_tiny"),
        (
            ["scheme=per_tensor", "cluster=64gpu", "cluster.device=h1000"],
            "unknown device 'h1000'; write the nearest by numbers, ssfx list devices has all by their rates",
        ),
    ],
)
def test_what_cannot_be_planned_is_told(shipped, uncounted, words, expected, capsys):
    assert expected in refusal(capsys, "plan", *words)


def test_why_explains_a_plan_of_auto_in_words_and_a_picture(capsys):
    asked = ["model=vgg16", "cluster=16gpu", "cluster.inter.gbps=10", "scheme=auto", "density=0.01"]
    title, *lines = output(capsys, "plan", *asked, "--why").splitlines()
    assert title.startswith("auto for vgg16 on 16gpu, 16 ranks: ")
    assert "budget: density=0.01" in lines[0]
    assert any(line.startswith("bucket 1: ") for line in lines)
    assert any("the end of the step otherwise: " in line for line in lines)
    device, network = (next(line for line in lines if line.startswith(name)) for name in ("device", "network"))
    assert len(device) == len(network)
    assert "1" in network
    assert max(map(len, lines)) <= 100


def test_methods_that_auto_did_not_use_are_named_by_why_alone(capsys):
    asked = ["model=vgg16", "cluster=16gpu", "scheme=auto"]
    told, why = (output(capsys, "plan", *asked, *more).splitlines() for more in ([], ["--why"]))
    assert sum(line.startswith("not used: ") for line in told) == 1
    assert sum(line.startswith("not used: ") for line in why) > 10


def test_why_is_for_auto(capsys):
    assert main(["plan", "scheme=ddp", "cluster=16gpu", "model=vgg16", "--why"]) == 2
    assert "--why explains plans of several ranks by scheme=auto" in capsys.readouterr().err
