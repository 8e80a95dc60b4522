"""The benchmark of emulated networks: who is called the best, what is refused, and a run on loopback."""

import json
import sys
from statistics import median

import pytest
from benchmarks.loading import benchmark_module

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import loads


@pytest.fixture(scope="module")
def emulated():
    return benchmark_module("emulated")


def compared(emulated, network, **step_s):
    times = dict.fromkeys(emulated.REFERENCES, [10.0] * 4) | {emulated.DDP: [20.0] * 4}
    times |= {f"ssfx {name}": values for name, values in step_s.items()}
    visits = {variant: {"step_s": values, emulated.NEAREST_LIMIT: [10.0] * 4} for variant, values in times.items()}
    return emulated.Comparison("vgg_tiny", network, 2, visits)


def test_a_lucky_scheme_is_judged_where_it_was_not_chosen(emulated):
    found = compared(emulated, "1gbit", lucky=[10.0, 14.0, 10.0, 16.0], steady=[11.0] * 4)
    assert found.ranked() == ["ssfx steady", "ssfx lucky"]
    assert found.summary() == [
        [
            "vgg_tiny",
            "1gbit",
            "2",
            "ssfx lucky",
            "1.50 (1.40-1.60)",
            "0.75 (0.70-0.80)",
            "1.50 (1.40-1.60)",
            "",
            "<= 1.10 x no communication",
            "missed",
        ]
    ]


def test_auto_is_compared_with_the_best_of_the_others_and_has_goals_of_its_own(emulated):
    found = compared(emulated, "1gbit", auto=[10.0, 10.4, 10.0, 10.6], steady=[11.0] * 4, slow=[12.0] * 4)
    assert found.ranked() == ["ssfx steady", "ssfx slow"]
    best, auto = found.summary()
    assert best[3] == "ssfx steady"
    assert auto[3:] == [
        "ssfx auto",
        "1.05 (1.04-1.06)",
        "0.53 (0.52-0.53)",
        "1.05 (1.04-1.06)",
        "0.95 (0.95-0.96)",
        "<= 1.05 x no communication",
        "met",
    ]


@pytest.mark.parametrize(
    ("network", "judged", "verdict"),
    [
        ("1gbit", [11.0, 11.0], "met"),
        ("1gbit", [10.9, 11.5], "within noise"),
        ("1gbit", [11.1, 11.1], "missed"),
        ("loopback", [20.0, 19.0], "met"),
        ("loopback", [20.1, 20.1], "missed"),
        ("100mbit", [10.0, 10.0], ""),
    ],
)
def test_the_verdict(emulated, network, judged, verdict):
    times = [9.0, judged[0], 9.0, judged[1]]
    assert compared(emulated, network, one=times).summary()[0][-1] == verdict


def test_ratios_are_to_the_limit_beside_a_visit_and_compare_visits_of_the_same_round(emulated):
    found = compared(emulated, "1gbit", one=[10.0, 20.0, 40.0, 60.0])
    found.visits["ssfx one"][emulated.NEAREST_LIMIT] = [10.0, 20.0, 20.0, 20.0]
    assert found.ratios("ssfx one", emulated.LIMIT).each == (1.0, 1.0, 2.0, 3.0)
    found.visits[emulated.DDP]["step_s"] = [10.0, 20.0, 20.0, 30.0]
    assert found.ratios("ssfx one", emulated.DDP).each == (1.0, 0.5, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "argument", "message"),
    [
        ("models_of", "vg", "unknown model 'vg'; did you mean 'vgg'"),
        ("variants_of", "ssfusion", "unknown scheme 'ssfusion'; did you mean 'ssfusion_o'"),
        ("variants_of", "wfbp topk,ddpp", "unknown scheme 'ddpp'; did you mean 'ddp'"),
    ],
)
def test_unknown_names_are_refused(emulated, call, argument, message):
    with pytest.raises(ConfigError, match=message):
        getattr(emulated, call)(argument)


def test_commas_inside_a_compressor_do_not_end_it(emulated):
    named = emulated.variants_of("ddp,per_tensor dgc(mode=faithful,value_dtype=float16)")[len(emulated.REFERENCES) :]
    assert named == ["ssfx ddp", "ssfx per_tensor dgc(mode=faithful,value_dtype=float16)"]


def test_options_of_a_scheme_may_be_named(emulated):
    assert emulated.scheme_of("auto(density=0.01)") == ("auto", {"density": 0.01})
    assert emulated.scheme_of("per_tensor dgc(mode=faithful)") == ("per_tensor", {"compressor": "dgc(mode=faithful)"})


def test_without_root_the_error_says_what_works(emulated, monkeypatch):
    monkeypatch.setattr(emulated, "missing", lambda: "it needs root")
    assert emulated.network_of("loopback", 2) is None
    with pytest.raises(ConfigError, match=r"1gbit cannot be emulated here: it needs root; use --networks loopback"):
        emulated.network_of("1gbit", 2)
    with pytest.raises(ConfigError, match="unknown network '1gb'; did you mean '1gbit'"):
        emulated.network_of("1gb", 2)


def test_a_record_keeps_what_was_not_compared_again(emulated, tmp_path):
    file = tmp_path / "times.json"
    old, other, new = (
        {"model": model, "network": network, "workers": 2, "date": date}
        for model, network, date in (
            ("vgg_tiny", "1gbit", "1"),
            ("gpt2_tiny", "loopback", "1"),
            ("vgg_tiny", "1gbit", "2"),
        )
    )
    for run in (old, other, new):
        emulated.keep(file, run)
    assert loads(file.read_text()) == {"columns": list(emulated.SUMMARY), "runs": [new, other]}


@pytest.mark.nightly
@pytest.mark.slow
def test_a_rank_that_fails_is_reported_with_what_it_said_and_nothing_is_left(emulated, started):
    with pytest.raises(RunError, match=r"(?s)of vgg_tiny failed.*unknown compressor 'top'; did you mean 'topk'"):
        emulated.compared("vgg_tiny", 2, None, ["ssfx fused_all top"], 2)
    assert started.left() == []


@pytest.mark.nightly
def test_a_run_on_loopback_measures_every_variant(emulated, monkeypatch, tmp_path, capsys):
    arguments = ["--models", "vgg", "--networks", "loopback", "--workers", "2", "--rounds", "2"]
    file = tmp_path / "times.json"
    monkeypatch.setattr(sys, "argv", ["emulated.py", *arguments, "--schemes", "ddp,mergecomp", "--json", str(file)])
    emulated.main()
    record = json.loads(file.read_text())
    (run,) = record["runs"]
    (line,) = run["summary"]
    assert line[:3] == ["vgg_tiny", "loopback", "2"]
    assert len(line) == len(record["columns"])
    assert (run["origin"], run["gradient_bytes"], run["batch_size"]) == ("measured", 10_883_112, 32)
    assert list(run["visits"]) == [*emulated.REFERENCES, "ssfx ddp", "ssfx mergecomp"]
    for visits in run["visits"].values():
        assert list(visits) == [*emulated.MEASURES, emulated.NEAREST_LIMIT]
        assert {len(values) for values in visits.values()} == {2}
        assert min(*visits["step_s"], *visits["cpu_s"]) > 0
    sent = {variant: median(visits["sent_bytes"]) for variant, visits in run["visits"].items()}
    assert sent["ssfx ddp"] == run["gradient_bytes"]
    assert 0 < sent["ssfx mergecomp"] < 0.1 * run["gradient_bytes"]  # its plan was in use when it was timed
    told = capsys.readouterr().out
    assert "vgg_tiny, loopback, 2 workers" in told
    assert "<= 1.00 x torch DDP" in told
