"""What commands print for machines: one JSON object with stable keys."""

import json

import pytest
from refusals import output

from experiments.common.validation.groups import Group
from experiments.common.validation.scores import Pair
from ssfx.cli import main
from ssfx.cli.listing import KINDS
from ssfx.config.overrides import read
from ssfx.schemes import schemes


def printed(capsys, *words):
    return json.loads(output(capsys, *words, "--json"))


def test_lists_are_objects_by_kind(capsys):
    assert set(printed(capsys, "list")) == set(KINDS)
    found = printed(capsys, "list", "schemes")["schemes"]
    assert [one["scheme"] for one in found] == sorted(schemes.names())
    assert all(one["exchange"] for one in found)


def test_the_doctor_says_what_runs_and_why_not(capsys):
    found = printed(capsys, "doctor")
    assert found["ready"] is True
    assert "python" in found["facts"]
    assert {"what", "runs", "why", "required"} == set(found["checks"][0])


def test_status_counts_claims_and_runs(capsys):
    found = printed(capsys, "status")
    assert set(found["claims"]["ssfusion"]) >= {"agrees", "partly", "disagrees"}
    assert found["runs"] == {}
    claims = printed(capsys, "status", "--claims", "micro")
    assert claims["paper"] == "micro"
    assert sum(found["claims"]["micro"].values()) == len(claims["claims"])


def test_a_run_is_its_cases_comparisons_and_figures(capsys):
    words = ("experiment=throughput", "cluster=16gpu", "scheme=ddp,ssfusion_oi", "workload=resnet152_imagenet")
    before = printed(capsys, "run", *words, "--dry-run")
    assert [one["status"] for one in before["cases"]] == ["new", "new"]
    assert (before["comparisons"], before["figures"]) == ([], [])
    found = printed(capsys, "run", *words)
    assert {one["status"] for one in found["cases"]} == {"finished"}
    (panel,) = found["comparisons"]
    assert (panel["origin"], panel["world_size"]) == ("simulated", 16)
    dense, sparse = panel["schemes"]
    assert dense["against_dense"] is None
    assert sparse["against_dense"]["ratio"] == pytest.approx(dense["iteration_s"] / sparse["iteration_s"])
    assert sparse["runs"] == [found["cases"][1]["run_id"]]
    assert main(["run", *words, "--cfg", "job", "--json"]) == 2


def test_figures_are_listed_with_what_became_of_them(capsys, tmp_path):
    found = printed(capsys, "figures", "ssfusion.eq2", "--out", str(tmp_path))
    assert found["folder"] == str(tmp_path)
    (one,) = found["figures"]
    assert set(one) == {"name", "state", "files", "said"}
    assert one["state"] == "drawn"
    assert one["files"][0].endswith(".png")


def test_validation_is_scores_by_group_and_goals(monkeypatch, capsys):
    group = Group(
        "MergeComp: two times",
        "nothing",
        "two times",
        (Pair("m", "a", 1.1, 1.0), Pair("m", "b", 2.0, 2.0)),
        (("slow", lambda pair: pair.label == "b"),),
        beyond_compute=(Pair("m", "a", 0.3, 0.2),),
    )
    monkeypatch.setattr("experiments.common.validation.ground_truth.load", lambda name: [group])
    found = printed(capsys, "validate", "published")
    (one,) = found["groups"]
    assert (one["name"], one["count"], one["orderings"]) == ("MergeComp", 2, {"right": 1, "of": 1})
    assert one["beyond_compute"]["mean"] == pytest.approx(0.5)
    assert one["sets"]["slow"]["mean"] == 0
    assert [(goal["limit"], goal["met"]) for goal in found["goals"]] == [(0.07, True), (0.85, True)]


def test_all_schemes_and_the_papers_own_may_be_asked_for_by_a_word():
    assert read(["scheme=all"])["scheme"] == tuple(sorted(schemes.names()))
    assert read(["scheme=ddp,ssfusion"])["scheme"] == ("ddp", "ssfusion_oi")
