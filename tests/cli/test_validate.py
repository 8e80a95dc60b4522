"""`ssfx validate` prints every score of every group, and one line for what cannot be had."""

import pytest
from refusals import output, refusal

from experiments.common.validation.groups import Group
from experiments.common.validation.quality import BY_NETWORK
from experiments.common.validation.scores import Pair
from ssfx.cli import main

TIMES = Group(
    "made-up times: of nothing",
    "nothing",
    "two times",
    (Pair("m", "fast", 2.2, 2.0), Pair("m", "slow", 2.0, 2.5)),
    (("slow ones", lambda pair: pair.label == "slow"),),
    ("a reason",),
)
RATIOS = Group(
    "made-up ratios", "nothing", "one ratio", (Pair("r", "gain", 1.5, 1.0, extrapolated=True, claim="a.b"),), unit="x"
)


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr("experiments.common.validation.ground_truth.load", lambda name: [TIMES, RATIOS])


def test_the_summary_stands_first_and_says_which_goals_are_met(monkeypatch, capsys):
    runs = Group(
        "recorded: runs",
        "nothing",
        "one run",
        (Pair("m", "ddp", 1.02, 1.0),),
        beyond_compute=(Pair("m", "ddp", 0.08, 0.1),),
    )
    monkeypatch.setattr(
        "experiments.common.validation.ground_truth.load", lambda name: {"recorded": [runs]}.get(name, [TIMES, RATIOS])
    )
    lines = output(capsys, "validate").splitlines()
    assert lines[0] == (
        "blind: simulated times of 1 recorded runs are 2.0 % off on average, 20 % in the part beyond compute"
    )
    assert ["made-up", "times", "2", "15.0", "%", "-", "20", "%", "0", "of", "1"] in [line.split() for line in lines]
    assert "  met     mean error, recorded at most 5 %: 2.0 %" in lines
    assert "  missed  mean error, recorded, part beyond compute at most 15 %: 20.0 %" in lines
    assert "  missed  right orderings, published at least 85 %: 0.0 %" in lines
    assert "--detail" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_steps_are_scored_beside_a_law_of_no_effect(monkeypatch, capsys):
    pairs = Pair("m", "low rank", 1.2, 1.0), Pair("m", "top-k", 1.5, 1.6)
    steps = Group(f"{BY_NETWORK}: steps", "nothing", "two runs", pairs, unit="x", over_dense=True)
    monkeypatch.setattr("experiments.common.validation.ground_truth.load", lambda name: [steps])
    lines = [line.split() for line in output(capsys, "validate", "quality").splitlines()]
    assert next(line for line in lines if "blind," in line)[-8:] == [
        "mean",
        "error",
        "of",
        "no",
        "effect",
        "median",
        "largest",
        "bias",
    ]
    assert next(line for line in lines if line[:1] == ["all"])[:6] == ["all", "2", "13.1", "%", "18.8", "%"]


def test_every_score_is_printed_in_detail(made_up, capsys):
    out = output(capsys, "validate", "published", "--detail")
    assert "calibrated on: nothing" in out
    assert "tested on: two times" in out
    row = next(line for line in out.splitlines() if line.startswith("all")).split()
    assert row == ["all", "2", "15.0", "%", "-", "-", "15.0", "%", "20.0", "%", "-5.0", "%", "-1.00", "0", "of", "1"]
    assert next(line for line in out.splitlines() if line.startswith("slow ones")).split()[2:4] == ["1", "20.0"]
    assert "worst: m, slow: -20.0 %" in out
    assert "inverted: m: slow is 25 % above fast, simulated 9 % below" in out
    assert "  a reason\n" in out


def test_detail_lists_every_prediction_in_its_unit(made_up, capsys):
    lines = [line.split() for line in output(capsys, "validate", "--detail").splitlines()]
    assert ["m", "fast", "2200.0", "ms", "2000.0", "ms", "+10.0", "%"] in lines
    assert ["r", "gain", "1.5x", "1x", "+50.0", "%", "extrapolated", "a.b"] in lines


def test_an_unknown_group_is_one_line(capsys):
    assert "did you mean 'published'?" in refusal(capsys, "validate", "publshed")


def test_without_recorded_rows_one_line_says_how_to_get_them(monkeypatch, capsys):
    monkeypatch.setattr("ssfx.lab.results.store.Store.reference_rows", lambda self: [])
    assert main(["validate", "recorded"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ssfx run experiment=validation" in err
