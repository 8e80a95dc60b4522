"""`iteration_ms=`: a measured iteration on one device scales the profile, whatever command asks."""

import pytest

from ssfx.advice.cases import simulate_case
from ssfx.config.advice_question import resolve_setting
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError

WORDS = ["model=resnet_tiny", "cluster=acpsgd_10gbe"]


def test_a_simulated_device_alone_takes_the_time_that_was_given():
    (case,) = resolve_simulations([*WORDS, "scheme=ddp", "iteration_ms=253"])
    (usual,) = resolve_simulations([*WORDS, "scheme=ddp", "cluster.host_us=0"])  # a host is in the time that was given
    target, step = simulate_case(case)
    plain, faster = simulate_case(usual)
    assert target.profile.alone_s() == pytest.approx(0.253)
    assert target.profile.tensors == plain.profile.tensors
    assert target.profile.forward_s / target.profile.backward_s == pytest.approx(
        plain.profile.forward_s / plain.profile.backward_s
    )
    assert step.iteration_s > faster.iteration_s
    assert "iteration_ms=253" in target.profile.origin.note
    assert case.calibration != usual.calibration


def test_advice_and_plans_take_it_too():
    assert resolve_setting([*WORDS, "iteration_ms=253"]).profile.alone_s() == pytest.approx(0.253)
    _, profile, _ = plan_of(resolve_plan([*WORDS, "scheme=omgs", "iteration_ms=506"]))
    assert profile.alone_s() == pytest.approx(0.506)


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "fast", ""])
@pytest.mark.parametrize("resolve", [resolve_simulations, resolve_setting, resolve_plan])
def test_only_a_time_above_zero_is_one(resolve, value):
    with pytest.raises(ConfigError, match=r"is no iteration time; .*iteration_ms=253"):
        resolve([*WORDS, f"iteration_ms={value}"])
    with pytest.raises(ConfigError, match="given twice"):
        resolve([*WORDS, "iteration_ms=1", "iteration_ms=2"])
