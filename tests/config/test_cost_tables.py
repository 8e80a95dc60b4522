"""Shipped cost tables say what they were made from and are joined with the cluster asked for."""

import pytest

from ssfx import cost_tables
from ssfx.compressors import compressors
from ssfx.config.clusters import cluster_of
from ssfx.config.compose import compose
from ssfx.errors import ConfigError


def cluster(name, **changes):
    return cluster_of({**compose({"cluster": name})["cluster"], **changes}, None, "cpu" if name == "local" else "auto")


def test_a100_is_table_3_of_the_paper():
    table = cost_tables.load("a100")
    assert table.origin.kind == "published"
    assert table.encode["dgc"](2500) == 0.85e-3
    assert table.encode["dgc"](2_500_000) == 1.82e-3
    assert table.host["dgc"](250_000) == 3.22e-3


def test_cpu_was_measured_for_components_that_exist():
    table = cost_tables.load("cpu")
    assert table.origin.kind == "measured"
    assert table.origin.versions["torch"]
    assert set(table.encode) == {"dgc", "randomk", "topk"} <= set(compressors.names())
    assert all(curve.covers(2**8) and curve.covers(2**24) for curve in table.encode.values())


def test_decode_grows_with_ranks_and_density():
    few, many = cluster("16gpu"), cluster("64gpu")
    assert cost_tables.costs_on(many, "dgc", 0.01).decode(10**7) > cost_tables.costs_on(few, "dgc", 0.01).decode(10**7)
    assert cost_tables.costs_on(few, "dgc", 0.1).decode(10**7) > cost_tables.costs_on(few, "dgc", 0.01).decode(10**7)


def test_dense_costs_need_no_table_and_say_nominal():
    costs = cost_tables.costs_on(cluster("64gpu", device="h100"), None, None)
    assert costs.origin.kind == "nominal"
    assert costs.exchange_s("all_reduce", 10**6) > 0


def test_nothing_is_substituted():
    with pytest.raises(ConfigError, match="no cost curve for compressor fp16 on a100; there is one for dgc"):
        cost_tables.costs_on(cluster("64gpu"), "fp16", None)
    with pytest.raises(ConfigError, match="no cost table for device h100; there is one for a100, cpu"):
        cost_tables.load("h100")


def test_presets_are_nodes_of_four():
    for name, nodes in (("16gpu", 4), ("32gpu", 8), ("64gpu", 16)):
        made = cluster(name)
        assert (made.nodes, made.devices_per_node, made.inter.gbps, made.name) == (nodes, 4, 200, name)
        assert "SSFusion" in made.source
