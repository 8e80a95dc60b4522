"""Who is told that nominal steps of a GPU know no host."""

from dataclasses import replace

import pytest

from ssfx.cli import main
from ssfx.core.case import ClusterChoice
from ssfx.core.origin import Origin
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.target import target_at

SAID = (
    "nominal steps know no host: on one H200 eager steps in 16 bits took 1.1 to 3.6 times the GPU's busy time; profile "
    "yours (ssfx doctor --gpu, ssfx profile)"
)


def target(cluster="64gpu", model="resnet50", device="cuda", **options):
    return target_at(ClusterChoice(cluster, options), None, device, model, 32, "sgd")


def test_nominal_steps_of_a_gpu_come_with_the_caution():
    one = target()
    assert cautions(one.profile, one.cluster) == [SAID]


def test_calibrations_by_a_paper_and_given_times_come_without():
    for one in (target("acpsgd_10gbe", calibration="published"), target(model="resnet50(iteration_ms=253)")):
        assert one.profile.origin.kind == "nominal"
        assert SAID not in cautions(one.profile, one.cluster)


def test_a_measured_profile_and_a_cpu_come_without():
    one = target()
    measured = replace(one.profile, origin=Origin("measured", hardware="NVIDIA A100-SXM4-80GB"))
    assert SAID not in cautions(measured, one.cluster)
    assert SAID not in cautions(one.profile, replace(one.cluster, device="cpu"))


@pytest.mark.parametrize("words", [["advise"], ["simulate", "scheme=ddp,wfbp", "--why"], ["plan", "scheme=ddp"]])
def test_every_answer_says_it_once(words, capsys):
    assert main([*words, "model=resnet50", "cluster=16gpu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"beware: {SAID}") == 1
