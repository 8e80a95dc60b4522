"""Calibrations that rest on a paper: what each used, that nothing used is scored, that the fit is what is shipped."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from ssfx.claims.ledger import ledgers
from ssfx.core.component_file import component_file
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
    assert json.loads(module.PATH.read_text()) == module.table(found)
    assert component_file("cluster", "64gpu")["fitted"]["busbw_gbps"] == found["busbw_gbps"]


def test_nothing_that_was_fitted_is_what_it_is_tested_on() -> None:
    used = set(json.loads((data_dir() / "costs" / "ssfusion_fitted.json").read_text())["fit"]["claims"])
    known = {claim.id: claim for ledger in ledgers() for claim in ledger.claims}
    assert used <= set(known)
    assert not [claim for claim in used if known[claim].artifact in TESTED]


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
    assert exchange["all_gather"](1.34e9) == pytest.approx(12.02, rel=0.05)
    assert exchange["all_reduce"](1.34e9) == pytest.approx(0.35, rel=0.05)
