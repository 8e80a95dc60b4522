"""A cluster's options are in the name of its cases, all that count and no others, and the name gives it back."""

from dataclasses import replace

import pytest

from ssfx.config.advice_question import resolve_setting
from ssfx.config.clusters import choice_at
from ssfx.config.compose import compose
from ssfx.core import machine
from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job
from ssfx.perf_model.cluster_file import choice_of, cluster_of, cluster_on

pytestmark = pytest.mark.usefixtures("two_cores")


def at(name, world_size=None, on="cpu", **options):
    point = {"cluster": name, **{f"cluster.{key.replace('__', '.')}": value for key, value in options.items()}}
    cluster = cluster_of(compose(point)["cluster"], world_size, on)
    choice = choice_at(point, cluster)
    found = cluster_on(choice, cluster.world_size, on)
    assert found == replace(cluster, name=str(choice))
    assert ClusterChoice.parse(str(choice)) == choice
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
    assert choice_of("64gpu", {}) == ClusterChoice("64gpu")
    same = {"nodes": 16, "inter.gbps": 200.0, "calibration": "nominal"}
    assert choice_of("64gpu", same) == ClusterChoice("64gpu", {})


def test_two_spellings_of_a_device_or_a_link_are_one_choice():
    for said in ("H100", "h-100", "NVIDIA H100"):
        assert choice_of("box", {"device": said}) == choice_of("box", {"device": "h100"}), said
    assert choice_of("box", {"device": "A100"}) == choice_of("box", {"device": "a100"})
    assert choice_of("box", {"inter.link": "25gbe_tcp"}) == choice_of("box", {"inter.link": "eth_25_tcp"})
    words = ("model=resnet50", "dataset=synthetic", "scheme=ddp", "engine=simulate", "cluster=box")
    ids = {
        resolve_job([*words, f"cluster.device={on}", f"cluster.link={link}"]).cases[0].run_id
        for on in ("H100", "h100")
        for link in ("25gbe_tcp", "eth_25_tcp")
    }
    assert len(ids) == 1


def case(cluster):
    return Case("e", "m", "d", "ddp", cluster, 2, 4)


def test_a_case_is_the_same_by_data_by_object_and_by_the_text_that_old_rows_have():
    old = case("64gpu(calibration=published,inter.gbps=10)")
    new = case(ClusterChoice("64gpu", {"inter.gbps": 10.0, "calibration": "published"}))
    assert old == new == case({"name": "64gpu", "options": {"calibration": "published", "inter.gbps": 10}})
    assert old.run_id == new.run_id == Case.from_json(new.to_json()).run_id == "7d1ea70293ae"
    assert case("local").run_id == "9ef7e6d0a91f"
    with pytest.raises(ValueError, match="is not a cluster"):
        case("64gpu)(")


def test_a_factor_of_no_primitive_is_refused():
    file = compose({"cluster": "64gpu", "cluster.calibration": "published"})["cluster"]
    assert cluster_of(file | {"factors": {"all_gather": 2}}, None, "auto").factors == {"all_gather": 2}
    with pytest.raises(ConfigError, match=r"unknown primitive .*'all_gahter'; did you mean 'all_gather'\?"):
        cluster_of(file | {"factors": {"all_gahter": 2}}, None, "auto")


def test_a_cluster_in_five_words():
    words = ("nodes=8", "devices_per_node=4", "device=rtx3090", "link=10gbe_tcp", "inside=pcie3")
    asked = ["model=resnet50", "cluster=box", *(f"cluster.{word}" for word in words)]
    cluster = resolve_setting(asked).cluster
    assert (cluster.nodes, cluster.devices_per_node, cluster.device) == (8, 4, "rtx3090")
    assert (cluster.inter.gbps, cluster.inter.rdma, cluster.intra.gbps) == (10, False, 126)
    with pytest.raises(ConfigError, match=r"nearest by numbers: cluster\.link=eth_10_tcp cluster\.inter\.gbps=7$"):
        resolve_setting([*asked[:2], "cluster.link=7gbe_tcp"])
    with pytest.raises(ConfigError, match=r"cluster\.inter\.link is given twice"):
        resolve_setting([*asked, "cluster.inter.link=eth_10_tcp"])


def test_a_file_is_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("defaults: [16gpu, _self_]\nsummary: mine\nnodes: 3\n")
    for name in ("mine.yaml", str(tmp_path / "mine.yaml")):
        cluster = resolve_setting(["model=resnet50", f"cluster={name}"]).cluster
        assert (cluster.name, cluster.world_size, cluster.device) == (name, 12, "a100")
    (tmp_path / "mine.yaml").write_text("defaults: [16gpu, _self_]\nsummary: mine\nnodes: 30\n")
    assert resolve_setting(["model=resnet50", "cluster=mine.yaml"]).cluster.world_size == 120
    with pytest.raises(ConfigError, match=r"there is no file .*other\.yaml"):
        resolve_setting(["model=resnet50", "cluster=other.yaml"])


@pytest.mark.parametrize(("name", "device"), [("8gpu", "a100"), ("8xV100", "v100"), ("8gpus", "a100")])
def test_a_number_of_gpus_is_answered_with_how_to_say_it(name, device):
    words = rf"cluster=box cluster\.nodes=1 cluster\.devices_per_node=8 cluster\.device={device} cluster\.inside=pcie"
    with pytest.raises(ConfigError, match=words):
        resolve_setting(["model=resnet50", f"cluster={name}"])


@pytest.mark.parametrize("name", ["x.log", "runs/nccl.out", "there.txt", "there.json"])
def test_a_log_is_answered_with_what_to_do_with_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").write_text("{}")
    with pytest.raises(ConfigError, match=rf"cluster={name} is no file of a cluster.*ssfx cluster import {name}"):
        resolve_setting(["model=resnet50", f"cluster={name}"])
    words = "cluster=box cluster.nodes=1 cluster.device=h100 cluster.busbw_gbps=3840 cluster.small_allreduce_us=20"
    assert resolve_setting(["model=resnet50", *words.split()]).cluster.busbw_gbps == 3840
