"""`ssfx validate` prints every score of every group, and one line for what cannot be had."""

import pytest

from ssfx.cli import main
from ssfx.validation.groups import Group
from ssfx.validation.scores import Pair

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
    monkeypatch.setattr("ssfx.validation.groups.load", lambda name: [TIMES, RATIOS])


def test_every_score_is_printed(made_up, capsys):
    assert main(["validate", "published"]) == 0
    out = capsys.readouterr().out
    assert "calibrated on: nothing" in out
    assert "tested on: two times" in out
    row = next(line for line in out.splitlines() if line.startswith("all")).split()
    assert row == ["all", "2", "15.0", "%", "15.0", "%", "20.0", "%", "-5.0", "%", "-1.00", "1", "(1)"]
    assert next(line for line in out.splitlines() if line.startswith("slow ones")).split()[2:4] == ["1", "20.0"]
    assert "worst: m, slow: -20.0 %" in out
    assert "inverted: m: slow is 25 % above fast, simulated 9 % below" in out
    assert "  a reason\n" in out
    assert out.splitlines()[-1].startswith("made-up times: mean 15.0 %, max 20 %, tau -1.00 (n = 2); made-up ratios: ")


def test_detail_lists_every_prediction_in_its_unit(made_up, capsys):
    assert main(["validate", "--detail"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["m", "fast", "2200.0", "ms", "2000.0", "ms", "+10.0", "%"] in lines
    assert ["r", "gain", "1.5x", "1x", "+50.0", "%", "extrapolated", "a.b"] in lines


def test_an_unknown_group_is_one_line(capsys):
    assert main(["validate", "publshed"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "did you mean 'published'?" in err


def test_without_recorded_rows_one_line_says_how_to_get_them(monkeypatch, capsys):
    monkeypatch.setattr("ssfx.results.store.Store.reference_rows", lambda self: [])
    assert main(["validate", "recorded"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ssfx run experiment=validation" in err
