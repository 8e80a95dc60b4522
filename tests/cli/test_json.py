"""What commands print for machines: one JSON object with stable keys."""

import json

from ssfx.cli import main
from ssfx.cli.listing import KINDS
from ssfx.config.overrides import read
from ssfx.schemes import schemes


def printed(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


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


def test_all_schemes_and_the_papers_own_may_be_asked_for_by_a_word():
    assert read(["scheme=all"])["scheme"] == tuple(sorted(schemes.names()))
    assert read(["scheme=ddp,ssfusion"])["scheme"] == ("ddp", "ssfusion_oi")
