"""Calibrations that rest on a paper: what each used, that nothing used is scored, that the fit is what is shipped."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from claims.test_every_claim import Script
from figures.synthetic_clusters import growth

from experiments.common.claims.ledger import INPUTS, USED, claims_by_id, used_by
from experiments.common.claims.simulated import judged
from experiments.common.claims.verdicts import JUDGED, Verdict
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines, verdicts
from experiments.common.pages.readme import reference_rows
from ssfx.core.component_file import component_file
from ssfx.core.files import read_json
from ssfx.core.paths import data_dir
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_of, with_options

TESTED = tuple(f"ssfusion.fig{number}" for number in range(11, 18))


def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "fit_ssfusion.py"
    spec = importlib.util.spec_from_file_location("fit_ssfusion", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_shipped_is_what_the_fit_gives() -> None:
    module = script()
    found = module.fit()
    assert read_json(module.PATH) == module.table(found)
    assert component_file("cluster", "64gpu")["fitted"]["busbw_gbps"] == found["busbw_gbps"]


def test_everything_that_was_fitted_is_on_the_list_and_nothing_that_it_is_tested_on() -> None:
    read = read_json(data_dir() / "costs" / "ssfusion_fitted.json")["fit"]["claims"]
    assert read
    assert all(used_by("fitted", claims_by_id()[claim]) for claim in read)
    assert not [claim.id for claim in claims_by_id().values() if claim.artifact in TESTED and used_by("fitted", claim)]


def test_everything_that_published_clusters_name_as_their_source_is_on_the_list() -> None:
    named = set()
    for path in (Path(__file__).parents[2] / "conf" / "cluster").glob("*.yaml"):
        named |= set(re.findall(r"([a-z0-9]+(?:\.[a-z0-9]+)+)\.\*", path.read_text()))
    assert {"ssfusion.table3", "acpsgd.iv.ar", "mergecomp.budget"} <= named <= set(INPUTS["published"])


@pytest.mark.parametrize("calibration", sorted(INPUTS))
def test_every_entry_of_the_list_means_a_claim(calibration: str) -> None:
    for name in INPUTS[calibration]:
        assert any(claim.artifact == name or claim.id.startswith(name) for claim in claims_by_id().values()), name


def test_no_claim_is_both_fitted_and_scored() -> None:
    found = judged("ssfusion.fig9", growth(calibration="fitted:1a2b3c4d"))
    assert found
    assert {one.reason for one in found} == {USED}
    scored = [one for one in headlines(discover().values(), reference_rows()).values() if one.outcome in JUDGED]
    assert scored
    assert not [one.claim for one in scored if used_by(one.calibration, claims_by_id()[one.claim])]


def test_a_script_that_scores_what_was_fitted_is_overruled() -> None:
    said = Verdict("ssfusion.fig9.modelA.ag64", "agrees", "9", "simulated", "fitted")
    own = [one for one in verdicts([Script((said,))], []) if one.claim == said.claim]
    assert [(one.outcome, one.reason) for one in own] == [("not comparable", USED)]


@pytest.mark.parametrize("calibration", ["published", "fitted"])
def test_every_sparsifier_has_the_papers_curve(calibration: str) -> None:
    node = with_options(component_file("cluster", "64gpu"), {"calibration": calibration})
    system = system_on(cluster_of(node, None, "auto"))
    assert (system.style, system.origin.kind) == ("per_call", calibration)
    dgc = system.codec("dgc")
    assert all(system.codec(name).encode == dgc.encode for name in ("topk", "gaussiank", "redsync", "sidco"))
    assert not dgc.encode.covers(10**9)
    assert re.search("beyond", dgc.origin.note)


def test_the_fitted_cluster_is_as_slow_as_figure_9() -> None:
    node = with_options(component_file("cluster", "64gpu"), {"calibration": "fitted"})
    exchange = system_on(cluster_of(node, None, "auto")).exchange
    off = read_json(data_dir() / "costs" / "ssfusion_fitted.json")["fit"]["residuals"]
    assert exchange["all_gather"](1.34e9) == pytest.approx(12.02 * (1 + off["ssfusion.fig9.modelA.ag64"]), rel=0.01)
    assert exchange["all_reduce"](1.34e9) == pytest.approx(0.35 * (1 + off["ssfusion.fig9.modelA.ar64"]), rel=0.01)
    assert max(abs(off[f"ssfusion.fig9.{name}64"]) for name in ("modelA.ag", "modelA.ar", "modelB.ag")) < 0.08
