"""The benchmark of the runtime: each of its variants is a combination that the schemes accept."""

from __future__ import annotations

import pytest
from benchmarks.loading import benchmark_module
from torch import nn

import ssfx
from ssfx.perf_model.roofline import analytic_profile
from ssfx.planning.costs import placeholder_costs
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan


@pytest.fixture(scope="module")
def runtime():
    return benchmark_module("runtime")


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
