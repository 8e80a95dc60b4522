"""No command goes on for minutes in silence: too many ranks are refused, and what takes long says what it is doing."""

import signal
from contextlib import suppress

import pytest
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core import progress as progress_module
from ssfx.core.progress import aloud, announce, doing
from ssfx.schemes import make_plan as make_plan_module

TOO_MANY = "at most 1,000,000 can be simulated"
NO_NODE = "must be in [1, 64] cards a node"


@pytest.mark.parametrize("command", ["simulate", "plan", "advise", "run --dry-run", "run --dry-run engine=slurm"])
@pytest.mark.parametrize(
    "key", ["nodes=125000000", "nodes=" + "9" * 24, "devices_per_node=1000000", "nics_per_node=9999999"]
)
def test_more_ranks_than_a_million_are_refused_in_a_line(command, key, capsys):
    words = [*command.split(), "model=resnet50", "cluster=box", f"cluster.{key}"]
    if "run" in command:
        words.append("dataset=synthetic")
    if "slurm" in command and "nics" in key:
        words = [word for word in words if word != "engine=slurm"]  # which finds them as they are
    assert (NO_NODE if "nics" in key else TOO_MANY) in refusal(capsys, *words)


def test_many_ranks_are_said_to_be_out_of_range(capsys):
    for command in ("simulate scheme=ddp", "plan scheme=ddp"):
        for nodes, said in ((100, False), (12500, True)):
            assert main([*command.split(), "model=resnet50", "cluster=box", f"cluster.nodes={nodes}"]) == 0
            assert ("beware: 100,000 ranks are far beyond the 64 of" in capsys.readouterr().out) == said


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("intra.gbps=2.5e-28", "cluster.intra.gbps must be in [0.001, 20000] Gbit/s, got 2.5e-28"),
        ("inter.gbps=1e12", "cluster.inter.gbps must be in [0.001, 6400] Gbit/s"),
        ("inter.latency_s=25", "cluster.inter.latency_s must be in [0, 0.5] s, got 25"),
    ],
)
def test_a_link_out_of_all_range_is_a_slip(word, said, capsys):
    assert said in refusal(capsys, "simulate", "model=resnet50", "cluster=64gpu", "scheme=ddp", f"cluster.{word}")


@pytest.fixture
def never_simulated(monkeypatch):
    def refused(*_, **__):
        raise AssertionError("something was simulated")

    for name in ("ssfx.simulator.simulate", "ssfx.advice.cases.simulate", "ssfx.lab.engines.simulate.simulate_case"):
        monkeypatch.setattr(name, refused)


def test_a_dry_run_simulates_nothing_and_searches_for_no_plan(never_simulated, monkeypatch, capsys):
    made = []
    real = make_plan_module.make_plan
    monkeypatch.setattr(
        "ssfx.lab.config.plans.make_plan", lambda scheme, *rest: made.append(scheme) or real(scheme, *rest)
    )
    assert "espresso" in output(capsys, "run", "experiment=density", "--dry-run")
    assert {"ddp", "oktopk"} <= set(made)
    assert not {"espresso", "auto", "ssfusion_oi"} & set(made)


def work_until_said(capfd):
    """Compute until a line was said, for at most some billion steps."""
    said = ""
    for _ in range(2000):
        sum(range(100_000))
        said += capfd.readouterr().err
        if said:
            break
    return said


@pytest.fixture
def slow_planning(monkeypatch):
    """Every plan takes until a line was said, at most some billion steps: how fast planners are decides nothing."""
    real = make_plan_module.check_capabilities

    def slowly(plan):
        for _ in range(2000):
            if progress_module._said:
                break
            sum(range(100_000))
        real(plan)

    monkeypatch.setattr(make_plan_module, "check_capabilities", slowly)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress_module, "AFTER_S", 0.02)
    monkeypatch.setattr(progress_module, "AGAIN_S", 0.02)


def test_what_takes_long_is_said_and_nothing_is_left_behind(impatient, capfd):
    before = signal.getsignal(signal.SIGVTALRM)
    with aloud(), doing("planning much"):
        assert work_until_said(capfd) == "ssfx: planning much ...\n"
        with doing("planning espresso"):
            assert work_until_said(capfd) == "ssfx: planning espresso ...\n"
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    with suppress(ValueError), aloud(), doing("planning what fails"):
        raise ValueError
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_is_short_and_what_is_no_command_says_nothing(impatient, monkeypatch, capfd):
    before = signal.getsignal(signal.SIGVTALRM)
    with doing("planning in somebody's training"):
        assert signal.getsignal(signal.SIGVTALRM) == before
        announce("planning in somebody's training")
    monkeypatch.setattr(progress_module, "AFTER_S", 1000.0)
    with aloud(), doing("planning"):
        sum(range(1000))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("simulate model=bert_large cluster=64gpu scheme=ddp,espresso", "ssfx: planning and simulating bert_large/"),
        (
            "plan model=bert_large cluster=64gpu scheme=espresso",
            "ssfx: planning espresso for bert_large on 64 ranks ...",
        ),
        ("advise model=bert_large cluster=64gpu", "schemes ..."),
        (
            "run experiment=density cluster=16gpu scheme=espresso density=0.01",
            "ssfx: planning and simulating resnet152/",
        ),
    ],
)
def test_commands_say_what_they_plan_or_simulate(words, said, impatient, slow_planning, capsys):
    assert main(words.split()) == 0
    captured = capsys.readouterr()
    assert said in captured.err
    assert said not in captured.out


def test_many_runs_on_all_cores_are_announced(capsys):
    assert (
        main(
            [
                "run",
                "experiment=density",
                "scheme=ddp,topk,per_tensor",
                "density=" + ",".join(f"0.{i:02}" for i in range(1, 30)),
            ]
        )
        == 0
    )
    assert "runs in 2 processes ..." in capsys.readouterr().err
