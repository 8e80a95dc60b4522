"""Plans rest on the TimingModel of the cluster, at the density asked for, and say where every time is from."""

import pytest

from ssfx.config.compose import compose
from ssfx.core.errors import ConfigError
from ssfx.perf_model import plan_costs as cost_tables
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_of


def cluster(name, **options):
    point = {"cluster": name, **{f"cluster.{key.replace('__', '.')}": value for key, value in options.items()}}
    return cluster_of(compose(point)["cluster"], None, "cpu" if name == "local" else "auto")


def test_published_costs_of_dgc_are_table_3_of_the_paper():
    costs = cost_tables.costs_on(cluster("64gpu", calibration="published"), "dgc", 0.01)
    assert costs.origin.kind == "published"
    assert costs.encode(2500) == 0.85e-3
    assert costs.encode(2_500_000) == 1.82e-3
    assert costs.host(250_000) == 3.22e-3
    assert not costs.encode.covers(2499)
    assert "Table III" in costs.origin.note
    assert "decoding is nominal" in costs.origin.note
    assert "200 Gbit/s" in costs.origin.note


def test_costs_on_a_cpu_are_the_measured_ones():
    costs = cost_tables.costs_on(cluster("local", calibration="nominal"), "topk", 0.01)
    assert costs.origin.kind == "measured"
    assert costs.origin.versions["torch"]
    assert costs.encode.covers(2**8)
    assert costs.encode.covers(2**24)
    assert not costs.encode.covers(2**25)


def test_decode_grows_with_ranks_and_density():
    few, many = cluster("16gpu"), cluster("64gpu")
    assert cost_tables.costs_on(many, "dgc", 0.01).decode(10**7) > cost_tables.costs_on(few, "dgc", 0.01).decode(10**7)
    assert cost_tables.costs_on(few, "dgc", 0.1).decode(10**7) > cost_tables.costs_on(few, "dgc", 0.01).decode(10**7)


def test_planning_and_simulating_have_one_source():
    here = cluster("32gpu")
    system = system_on(here)
    for compressor in ("topk", "qsgd", "powersgd(rank=32)", "block_topk"):
        assert cost_tables.costs_on(here, compressor, 0.01).exchange == system.exchange
        expected = system.planning_costs(compressor, 0.01)
        assert cost_tables.costs_on(here, compressor, 0.01).encode == expected.encode


def test_dense_costs_say_nominal_for_any_device():
    costs = cost_tables.costs_on(cluster("64gpu", device="h100"), None, None)
    assert costs.origin.kind == "nominal"
    assert costs.exchange_s("all_reduce", 10**6) > 0


def test_every_compressor_has_nominal_costs_that_say_so():
    costs = cost_tables.costs_on(cluster("64gpu"), "fp16", None)
    assert costs.origin.kind == "nominal"
    assert "NVIDIA A100" in costs.origin.hardware
    assert "75% of 1935 GB/s" in costs.origin.note


def test_nothing_is_substituted():
    with pytest.raises(ConfigError, match=r"unknown compressor 'zip'; there are fp16, .*; ssfx list compressors"):
        cost_tables.costs_on(cluster("64gpu"), "zip", None)
    with pytest.raises(ConfigError, match="unknown device 'a10'"):
        cluster("64gpu", device="a10")
