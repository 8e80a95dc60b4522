"""A cluster's options are in the name of its cases, all that count and no others, and the name gives it back."""

import pytest

from ssfx.config.clusters import cluster_at, cluster_named, cluster_of, cluster_text
from ssfx.config.compose import compose
from ssfx.core import machine
from ssfx.core.errors import ConfigError


@pytest.fixture(autouse=True)
def cpu_only(monkeypatch):
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setattr(machine, "cores", lambda: 2)


def at(name, world_size=None, on="cpu", **options):
    point = {"cluster": name, **{f"cluster.{key.replace('__', '.')}": value for key, value in options.items()}}
    found = cluster_at(point, compose(point)["cluster"], world_size, on)
    assert cluster_named(found.name, found.world_size, on) == found
    return found


def test_an_option_that_a_calibration_overrides_is_an_option():
    """The file has 0.9 and what is published 0.94."""
    fitted = at("acpsgd_10gbe", on="auto", calibration="published")
    chosen = at("acpsgd_10gbe", on="auto", calibration="published", inter__efficiency=0.9)
    assert (fitted.name, fitted.inter.efficiency) == ("acpsgd_10gbe(calibration=published)", 0.94)
    assert chosen.name == "acpsgd_10gbe(calibration=published,inter.efficiency=0.9)"
    assert chosen.inter.efficiency == 0.9
    assert at("acpsgd_10gbe", on="auto", calibration="published", inter__efficiency=0.94) == fitted
    assert at("acpsgd_10gbe", on="auto", calibration="nominal", inter__efficiency=0.9).name == "acpsgd_10gbe"


def test_any_line_rate_is_another_description_than_what_was_recorded():
    found = [at("local", inter__gbps=rate) for rate in (1, 10, 100)]
    assert [one.name for one in found] == [f"local(inter.gbps={rate})" for rate in (1, 10, 100)]
    assert {one.calibration for one in found} == {"nominal"}
    assert at("local", calibration="nominal", inter__gbps=10).name == "local(calibration=nominal)"
    assert at("local", calibration="recorded").name == "local"


def test_other_nodes_leave_what_was_recorded_and_share_the_ranks():
    one, two = at("local", 4, nodes=1), at("local", nodes=2)
    assert (one.name, one.calibration, one.devices_per_node) == ("local", "recorded", 4)
    assert (two.name, two.calibration, two.nodes, two.devices_per_node) == ("local(nodes=2)", "nominal", 2, 2)
    assert at("local", 6, nodes=2).devices_per_node == 3
    assert at("local", 1, nodes=2).world_size == 1
    with pytest.raises(ConfigError, match=r"world_size=7 cannot be .* over cluster\.nodes=2; use world_size=8"):
        at("local", 7, nodes=2)
    with pytest.raises(ConfigError, match=r"world_size=2 cannot be .* over cluster\.nodes=4; use world_size=4"):
        at("local", 2, nodes=4)
    with pytest.raises(ConfigError, match=r"cluster\.nodes must be a whole number of at least 1, got 0"):
        at("local", 2, nodes=0)


def test_devices_that_the_file_leaves_open_are_the_number_of_ranks():
    found = at("local", devices_per_node=4)
    assert (found.name, found.world_size, found.calibration) == ("local", 4, "recorded")
    assert at("emulated_4x1gbit", devices_per_node=2).name == "emulated_4x1gbit(devices_per_node=2)"


def test_gpus_that_are_named_are_all_used(monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: ("A", "A", "A", "A"))
    found = at("local", on="auto", device="a100")
    assert (found.name, found.device, found.world_size) == ("local(device=a100)", "a100", 4)
    assert at("local", on="auto").device == "cuda"


def test_nothing_changed_is_the_plain_name():
    assert cluster_text("64gpu", {}) == "64gpu"
    assert cluster_text("64gpu", {"nodes": 16, "inter.gbps": 200.0, "calibration": "nominal"}) == "64gpu"


def test_a_factor_of_no_primitive_is_refused():
    file = compose({"cluster": "64gpu", "cluster.calibration": "published"})["cluster"]
    assert cluster_of(file | {"factors": {"all_gather": 2}}, None, "auto").factors == {"all_gather": 2}
    with pytest.raises(ConfigError, match=r"unknown primitive .*'all_gahter'; did you mean 'all_gather'\?"):
        cluster_of(file | {"factors": {"all_gahter": 2}}, None, "auto")
