"""Rows of the simulate engine say whose measurements they rest on, and no memory changes them."""

from dataclasses import replace

import pytest

from ssfx.core import machine
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines import engines
from ssfx.lab.results.store import Store
from ssfx.perf_model.target import target_of


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))


def rows(cases, tmp_path):
    return engines["simulate"].run(cases, Store(tmp_path), progress=False)


def test_measured_costs_and_profiles_name_the_machine(tmp_path):
    (case,) = resolve_job(["cluster=local", "engine=simulate", "scheme=ddp", "workload=digits_resnet"]).cases
    (row,) = rows([case], tmp_path)
    costs, profile = target_of(case).system.origin, target_of(case).profile.origin
    assert (costs.kind, profile.kind) == ("measured", "measured")
    assert row.origin.hardware == (
        f"cpu devices (measured costs on {costs.hardware}, {costs.date}, "
        f"measured profile on {profile.hardware}, {profile.date})"
    )
    assert row.manifest["system"]["origin"]["note"].endswith("; shipped with ssfx")


def test_a_row_keeps_what_its_plan_sends_and_needs(tmp_path):
    words = ["cluster=16gpu", "workload=bert_large_squad", "scheme=ddp_fp16,per_tensor", "density=0.01"]
    half, sparse = (row.manifest for row in rows(resolve_job(words).cases, tmp_path))
    assert half["methods"] == [["all_reduce", "fp16", 1.0, True]]
    assert ["all_gather", "dgc", 0.01, False] in sparse["methods"]
    assert half["alone_s"] == sparse["alone_s"] > 0
    assert 0 < half["needed_bytes"] < sparse["needed_bytes"] < half["device_memory_bytes"]


def test_the_memory_that_is_needed_does_not_depend_on_a_key_that_is_refused(tmp_path):
    words = ["cluster=16gpu", "workload=text_lstm", "density=0.01", "scheme=ddp,per_tensor,signsgd"]
    dense, sparse, signs = resolve_job(words).cases
    without = replace(sparse, memory="none")
    needed = [row.metrics["peak_memory_bytes"] for row in rows([dense, sparse, without, signs], tmp_path)]
    assert needed[1] == needed[2] > needed[0] == needed[3]  # signs are sent without error feedback
    assert (dense.memory, sparse.memory, signs.memory) == (None, "residual", "none")
