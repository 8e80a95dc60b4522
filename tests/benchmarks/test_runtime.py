"""The benchmark of the runtime: each of its variants is a combination that the schemes accept."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from torch import nn

import ssfx
from ssfx.perf_model.roofline import analytic_profile
from ssfx.runtime.setup import placeholder_costs
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan

PATH = Path(__file__).parents[2] / "benchmarks" / "runtime.py"


@pytest.fixture(scope="module")
def runtime():
    spec = importlib.util.spec_from_file_location("runtime_benchmark", PATH)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_variant_attaches_what_its_scheme_accepts(runtime, monkeypatch):
    attached = []
    monkeypatch.setattr(ssfx, "attach", lambda model, optimizer, **options: attached.append(options))
    profile = analytic_profile("resnet_tiny", "cpu", 4)
    for variant in runtime.variants():
        runtime.make(variant, lambda: nn.Linear(2, 2))
        options = {key: value for key, value in attached[-1].items() if key != "scheme" and value is not None}
        plan = make_plan(attached[-1]["scheme"], profile, placeholder_costs(2), options)
        assert plan.buckets, variant
    assert {one["scheme"] for one in attached} >= {scheme.name for scheme in schemes if not scheme.dense}
