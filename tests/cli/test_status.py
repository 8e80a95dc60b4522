"""The claim ledger is whole, and rows are compared with a claim only under the claim's conditions."""

import pytest
from refusals import output, refusal

from experiments.common.claims.evidence import evidence
from experiments.common.claims.ledger import ledgers
from experiments.common.cli.status import run_counts
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.results.store import Store

SSFUSION = next(ledger for ledger in ledgers() if ledger.paper == "ssfusion")


CLOUD = {"cluster": "64gpu", "world_size": 64, "device": "cuda"}


def rows(speeds, *, model="resnet_tiny", cluster="local", world_size=2, device="cpu"):
    made = []
    for scheme, speed in speeds.items():
        case = Case("throughput", model, "digits", scheme, cluster, world_size, 32, "dgc", 0.01, device=device)
        made.append(Row(case.run_id, case, {"throughput_samples_per_s": speed}, Origin("measured", "test")))
    return made


def entry(found, claim_id):
    return next(one for one in found if one.claim == claim_id)


def test_ledgers_hold_all_claims_with_unique_ids():
    ids = [claim.id for ledger in ledgers() for claim in ledger.claims]
    assert len(ids) == len(set(ids)) == 657
    assert {ledger.paper: len(ledger.claims) for ledger in ledgers()} == {
        "acpsgd": 162,
        "mergecomp": 99,
        "micro": 103,
        "s2reducer": 73,
        "ssfusion": 220,
    }
    for ledger in ledgers():
        artifacts = {artifact["id"] for artifact in ledger.artifacts}
        assert {claim.artifact for claim in ledger.claims} <= artifacts


def test_without_rows_nothing_is_claimed():
    assert evidence(SSFUSION, []) == []


def test_two_cpu_ranks_are_not_comparable_with_64_gpus():
    found = evidence(SSFUSION, rows({"ssfusion_naive": 100.0, "ssfusion_o": 110.0}))
    one = entry(found, "ssfusion.exp1.o_vs_naive")
    assert one.values == pytest.approx((0.1, 0.1))
    assert (one.outcome, one.source) == ("not comparable", "measured")
    assert one.reason == "resnet_tiny on 2 cpu ranks here"


@pytest.mark.parametrize(("speed", "outcome"), [(110.0, "agrees"), (150.0, "disagrees")])
def test_the_claims_own_conditions_are_judged(speed, outcome):
    made = rows({"ssfusion_naive": 100.0, "ssfusion_o": speed}, model="resnet152", **CLOUD)
    assert entry(evidence(SSFUSION, made), "ssfusion.exp1.o_vs_naive").outcome == outcome


@pytest.mark.parametrize("change", [{"cluster": "local"}, {"world_size": 8}, {"device": "cpu"}])
def test_any_other_condition_is_not_comparable(change):
    made = rows({"ssfusion_naive": 100.0, "ssfusion_o": 110.0}, model="resnet152", **{**CLOUD, **change})
    assert entry(evidence(SSFUSION, made), "ssfusion.exp1.o_vs_naive").outcome == "not comparable"


def test_a_range_that_leaves_the_stated_one_agrees_partly():
    made = rows({"ssfusion_naive": 100.0, "ssfusion_o": 110.0}, model="resnet152", **CLOUD)
    made += rows({"ssfusion_naive": 100.0, "ssfusion_o": 150.0}, model="bert_large", **CLOUD)
    assert entry(evidence(SSFUSION, made), "ssfusion.exp1.o_vs_naive").outcome == "partly"


def test_rows_of_different_settings_are_not_divided_by_each_other():
    made = rows({"ssfusion_naive": 100.0}) + rows({"ssfusion_o": 110.0}, model="lstm_tiny")
    assert "ssfusion.exp1.o_vs_naive" not in {one.claim for one in evidence(SSFUSION, made)}


def test_status_is_one_screen(capsys):
    out = output(capsys, "status")
    assert len(out.splitlines()) <= 40
    assert out.startswith("657 claims of 5 papers: ")
    assert "tested claims agree" in out.splitlines()[0]
    assert {"SSFusion", "orderings", "computed"} <= {line.split()[0] for line in out.splitlines() if line.strip()}


def test_the_claims_of_one_paper_are_listed(capsys):
    lines = output(capsys, "status", "--claims", "ssfusion").splitlines()
    assert len(lines) == 1 + 220
    assert any(line.startswith("exp1.o_vs_naive ") for line in lines)
    assert "did you mean 'ssfusion'?" in refusal(capsys, "status", "--claims", "ssfusio")


def test_unfinished_runs_are_counted(tmp_path):
    store = Store(tmp_path)
    case = Case("throughput", "resnet_tiny", "digits", "ddp", "local", 2, 32)
    (store.run_dir(case) / "attempt-1").mkdir(parents=True)
    (store.run_dir(case) / "case.json").write_text(case.to_json())
    assert run_counts(store)["throughput"]["half"] == 1


def test_verdicts_are_a_table_for_a_papers_appendix(capsys):
    lines = output(capsys, "status", "--claims", "micro", "--table", "latex").splitlines()
    assert lines[0] == r"\begin{longtable}{lllll}"
    assert sum(line.endswith(r"\\") and " & " in line for line in lines) == 103 + 2  # the head stands on each page
    assert output(capsys, "status", "--claims", "micro", "--table", "markdown").startswith("| claim | paper | here |")
    assert "--table latex is a form of --claims PAPER; add it" in refusal(capsys, "status", "--table", "latex")
