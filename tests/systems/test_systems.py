"""Systems of clusters: their numbers by hand, their calibrations, and what may never make them faster or slower."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from ssfx.config.compose import compose
from ssfx.config.groups import choices
from ssfx.core.component_file import component_file
from ssfx.core.errors import ConfigError
from ssfx.core.paths import data_dir
from ssfx.perf_model import build_timing_model as systems
from ssfx.perf_model.build_timing_model import CORE_GBPS, GPU_OCCUPANCY, system_on
from ssfx.perf_model.cluster import TREE_SHARES, Cluster, Link, _lesser
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.devices import device, device_names
from ssfx.perf_model.links import link_kind
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import Curve
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate

HERE = {name for name in choices("cluster") if name == "local" or name.startswith("emulated_")}
MEASURED = {name for name in choices("cluster") if "exchanges" in component_file("cluster", name)}
PAPERS = sorted(set(choices("cluster")) - HERE - MEASURED)
PUBLISHED = sorted(set(PAPERS) - {"micro", "box", "two_sites", "four_sites"})
GB = 1e9


def cluster(name, **options):
    point = {"cluster": name, **{f"cluster.{key.replace('__', '.')}": value for key, value in options.items()}}
    return cluster_of(compose(point)["cluster"], None, "cpu" if name == "local" else "auto")


def test_64_gpus_by_hand():
    exchange = system_on(cluster("64gpu")).exchange
    # of 64 hops 16 are to the next node, 10 us each, and 48 inside one, 5 us; every byte passes a card at 96 %
    hop_s = (16 * 1e-5 + 48 * 5e-6) / 64
    tree_s = 2 * (3 * 5e-6 + 4 * 1e-5)
    # a long message goes round a ring, as beyond two nodes no tree passes fewer bytes through a card
    assert exchange["all_reduce"](GB) == pytest.approx(126 * hop_s + 2 * 63 / 64 * GB * 8 / 192e9)
    assert exchange["all_gather"](1e6) == pytest.approx(63 * hop_s + 63 * 1e6 * 8 / 192e9)
    # a short message goes up and down a tree: 3 steps inside a node, 4 between 16 nodes
    assert exchange["all_reduce"](4) == pytest.approx(tree_s, rel=1e-4)
    # a middle one goes along the tree, at 0.6 of what a tree reaches at best: 0.92 of the line, 15 of 16 bytes
    half_mib = tree_s + 2 * 2**19 * 8 / 192e9 / (0.92 * 15 / 16 * 0.6)
    assert exchange["all_reduce"](2**19) == pytest.approx(half_mib)
    # four devices send through one card, 60 of 64 parts to other nodes
    assert exchange["all_to_all"](GB) == pytest.approx(63 * hop_s + 60 / 64 * GB * 4 * 8 / 192e9)


@pytest.mark.parametrize("nodes", [2, 3, 16, 1024])
@pytest.mark.parametrize("factors", [{}, {"all_reduce": 1.5}])
def test_an_all_reduce_takes_the_faster_of_a_ring_and_a_tree(nodes, factors):
    """Nodes of CPUs know rings only, so the same cluster of CPUs shows what the ring takes."""
    gpus = replace(cluster("64gpu", nodes=nodes), factors=factors)
    found, ring = (replace(gpus, device=name).exchange()["all_reduce"] for name in ("a100", "cpu"))
    passes = 1 if nodes == 2 else 2
    beta = factors.get("all_reduce", 1.0) * max(passes * 8 / 192e9, 2 * 3 / 4 * 8 / (252e9 * 0.8))
    tree_s = 2 * (3 * 5e-6 + (nodes - 1).bit_length() * 1e-5)
    for nbytes, share in TREE_SHARES:
        assert found(nbytes) == pytest.approx(min(ring(nbytes), tree_s + nbytes * beta / share), rel=1e-6), nbytes
    for nbytes in (1e9, 1e11):
        longest = tree_s + nbytes * beta / TREE_SHARES[-1][1]
        assert found(nbytes) == pytest.approx(min(ring(nbytes), longest), rel=1e-6)
    assert found(1) == pytest.approx(min(ring(1), tree_s), rel=1e-4)
    assert list(map(found, found.sizes)) == sorted(map(found, found.sizes))  # a longer message never takes less


def test_a_curve_of_the_lesser_is_the_lesser_everywhere():
    one, two = Curve((0.0, 10.0, 20.0), (5.0, 6.0, 30.0), unbounded=True), Curve.affine(1.0, 1.0)
    found = _lesser(one, two)
    for size in (*np.linspace(0.1, 40, 400), 1e9, 1e12):
        assert found(size) == pytest.approx(min(one(size), two(size)))
    assert len(found.sizes) < 10


@pytest.mark.parametrize("nodes", [3, 8, 64])
def test_beyond_two_nodes_long_messages_go_round_a_ring(nodes):
    """The tree may pass each card once on two nodes only; beyond them its bytes are those of a ring or more."""
    gpus = cluster("64gpu", nodes=nodes)
    found, ring = (replace(gpus, device=name).exchange()["all_reduce"] for name in ("a100", "cpu"))
    assert found(1e10) == pytest.approx(ring(1e10))
    assert found(1e4) < ring(1e4)


def test_an_all_reduce_on_two_nodes_passes_each_card_once_over_rdma_and_twice_over_sockets():
    few, many = (system_on(cluster("64gpu", nodes=nodes)).exchange["all_reduce"](GB) for nodes in (2, 16))
    inside = 2 * 3 / 4 * 8 / (252e9 * 0.8) / TREE_SHARES[-1][1]  # on two nodes PCIe is the slower part
    assert many / few == pytest.approx(2 * 63 / 64 * 8 / 192e9 / inside, rel=0.02)
    slow = replace(cluster("64gpu"), busbw_gbps=57.0)  # what Fig. 9 shows: growth 1.75 to 2.33 from 8 to 64 devices
    few, many = (replace(slow, nodes=nodes).exchange()["all_reduce"](GB) for nodes in (2, 16))
    assert many / few == pytest.approx(2 * 63 / 64 * TREE_SHARES[-1][1], rel=0.01)
    sockets = replace(cluster("64gpu", nodes=2), inter=Link(200.0, 0.96, 1e-5, rdma=False))
    assert system_on(sockets).exchange["all_reduce"](GB) == pytest.approx(GB * 8 / 192e9 * 2 * 7 / 8, rel=0.05)


@pytest.mark.parametrize("kind", sorted(json.loads((data_dir() / "links.json").read_text())))
def test_every_kind_of_link_has_a_rate_and_a_source(kind):
    found = link_kind(kind)
    assert found["source"]
    assert (Link.of_kind(kind, gbps=7.0).gbps, Link.of_kind(kind).kind) == (7, kind)


GENERATIONS = [
    ("p100", "nvlink", 640),
    ("v100", "nvlink", 1200),
    ("a100", "nvlink", 2400),
    ("a100_40gb", "nvlink", 2400),
    ("h100", "nvlink", 3600),
    ("h200", "nvlink", 3600),
    ("b200", "nvlink", 7200),
    ("v100", "pcie", 126),
    ("a100", "pcie", 252),
    ("l40s", "pcie", 252),
    ("h100", "pcie", 504),
    ("b200", "pcie", 504),
]


@pytest.mark.parametrize(("on", "family", "gbps"), GENERATIONS)
def test_a_family_of_links_has_the_generation_of_the_device(on, family, gbps):
    found = cluster("box", device=on, intra__link=family).intra
    assert (found.gbps, found.kind[: len(family)]) == (gbps, family)
    if family == "pcie":
        assert gbps == device(on).pcie_gbps
        assert cluster("box", device=on).intra == found  # what is not said


def test_every_device_has_a_pcie_of_its_rate_and_geforce_cards_pass_the_host():
    for name in device_names():
        assert link_kind("pcie", name)["gbps"] == device(name).pcie_gbps or name == "cpu"
    by_host = {name for name in device_names() if link_kind("pcie", name)["efficiency"] == 0.25}
    assert by_host == {"gb10", "rtx2080ti", "rtx3090", "rtx4090", "rtx5090"}


@pytest.mark.parametrize("on", ["v100s", "rtx2080ti", "rtx3090", "l40s", "cpu"])
def test_a_device_without_nvlink_between_all_of_a_node_is_told_so(on):
    with pytest.raises(ConfigError, match=rf"cluster\.intra: a node's {on} devices are not joined by nvlink; use pcie"):
        cluster("box", device=on, intra__link="nvlink")


@pytest.mark.parametrize(
    ("on", "gpus", "busbw_gbytes_s", "error"),
    [
        ("h100", 8, 480, 0.03),
        ("h200", 8, 475, 0.03),
        ("h100", 7, 460, 0.03),
        ("h100", 6, 440, 0.03),
        ("h100", 5, 420, 0.03),
        ("h100", 4, 370, 0.03),
        ("h100", 2, 370, 0.03),
        ("b200", 8, 830, 0.03),
        ("a100", 8, 240, 0.01),
    ],
)
def test_an_all_reduce_inside_a_node_is_as_fast_as_nccl_tests_say(on, gpus, busbw_gbytes_s, error):
    """NVIDIA/nccl#1455, #1807, NVIDIA/nccl-tests#212, #272: H100, H200 and B200 sum in the switch from 5 GPUs on."""
    one = cluster("box", nodes=1, devices_per_node=gpus, device=on, intra__link="nvlink")
    curve = one.exchange()["all_reduce"]
    busbw = 2 * (gpus - 1) / gpus * GB / (curve(2 * GB) - curve(GB)) / 1e9
    assert busbw == pytest.approx(busbw_gbytes_s, rel=error)
    gather = one.exchange()["all_gather"]
    assert (gpus - 1) * GB / (gather(2 * GB) - gather(GB)) == pytest.approx(
        1e9 / 8 * one.intra.gbps * one.intra.efficiency
    )


def test_what_the_switch_sums_is_said_and_gives_way_to_what_was_measured():
    one = cluster("box", nodes=1, device="h100", intra__link="nvlink")
    assert "all-reduces inside a node summed by the switch at 0.69 of 3600 Gbit/s" in system_on(one).origin.note
    assert "switch" not in system_on(cluster("box", nodes=1, intra__link="nvlink")).origin.note
    measured = replace(one, busbw_gbps=1000.0).exchange()["all_reduce"]
    assert 2 * 7 / 8 * GB / (measured(2 * GB) - measured(GB)) * 8 / 1e9 == pytest.approx(1000, rel=1e-6)
    many = cluster("box", nodes=2, device="h100", intra__link="nvlink", inter__link="ib_rdma_400", nics_per_node=8)
    summed, ringed = (
        one.exchange()["all_reduce"](GB)
        for one in (many, replace(many, intra=replace(many.intra, switch_efficiency=0.0)))
    )
    assert summed < ringed


@pytest.mark.parametrize("name", PAPERS)
def test_the_link_of_a_cluster_has_the_line_rate_of_its_kind(name):
    inter = cluster(name).inter
    assert not inter.kind or inter.gbps == link_kind(inter.kind)["gbps"]


def test_measured_numbers_stand_above_what_follows():
    base = cluster("64gpu")
    slow = system_on(replace(base, busbw_gbps=57.0, small_allreduce_us=300.0, compressor_call_ms=0.85))
    # as nccl-tests count: 126 of 64 parts
    assert slow.exchange["all_reduce"](GB) == pytest.approx(2 * 63 / 64 * GB * 8 / 57e9, rel=0.02)
    assert slow.exchange["all_reduce"](1.0) == pytest.approx(300e-6, rel=2e-6)
    calls = {name: codec.encode.seconds[0] for name, codec in slow.codecs.items()}
    assert {seconds for name, seconds in calls.items() if name not in ("fp16", "bf16")} == {0.85e-3}
    assert calls["fp16"] < 0.1e-3
    assert "busbw_gbps=57, small_allreduce_us=300, compressor_call_ms=0.85" in slow.origin.note
    with pytest.raises(ConfigError, match="busbw_gbps must be in"):
        replace(base, busbw_gbps=0.0)


def test_inside_one_node_there_is_no_tree():
    one = cluster("64gpu", nodes=1)
    assert one.exchange() == replace(one, device="cpu").exchange()


def test_two_cards_halve_the_time_on_the_wire():
    one, two = (system_on(cluster("64gpu", nics_per_node=cards)).exchange["send"] for cards in (1, 2))
    assert two(GB) - two(1) == pytest.approx((one(GB) - one(1)) / 2, rel=1e-6)


def test_acpsgd_published_gives_the_timings_it_was_fitted_to():
    """ResNet-50, 97.49 MiB, 161 tensors, 32 GPUs on 10 GbE: 243 ms one by one, 169 ms at once; within 5 %."""
    all_reduce = system_on(cluster("acpsgd_10gbe", calibration="published")).exchange["all_reduce"]
    dense_bytes = 97.49 * 2**20
    assert all_reduce(dense_bytes) == pytest.approx(0.169, rel=0.01)
    assert 161 * all_reduce(dense_bytes / 161) == pytest.approx(0.243, rel=0.05)
    assert all_reduce(1.0) == pytest.approx(0.40e-3, rel=0.02)


def test_mergecomp_published_gives_the_budget_it_was_fitted_to():
    """94 MB between two GPUs: 66 ms beyond a backward pass of 43 ms."""
    two = replace(cluster("mergecomp_pcie", calibration="published"), devices_per_node=2)
    assert system_on(two).exchange["all_reduce"](94.1e6) == pytest.approx(0.109, rel=0.01)


@pytest.mark.parametrize("name", PAPERS)
def test_calibrations_say_which_they_are(name):
    nominal = system_on(cluster(name))
    assert (nominal.origin.kind, nominal.style) == ("nominal", "batched")
    assert {codec.origin.kind for codec in nominal.codecs.values()} == {"nominal"}
    if name not in PUBLISHED:
        with pytest.raises(ConfigError, match=f"cluster={name} has no published calibration; use cluster.calibration"):
            cluster(name, calibration="published")
        return
    published = system_on(cluster(name, calibration="published"))
    assert (published.origin.kind, published.style) == ("published", "per_call")
    assert published.digest != nominal.digest
    assert "S2 Reducer appendix" in published.origin.note or "MergeComp section 3.2" in published.origin.note


@pytest.mark.parametrize("name", choices("cluster"))
def test_every_cluster_has_a_source_for_its_numbers(name):
    node = compose({"cluster": name})["cluster"]
    assert len(node["source"]) > 20
    for link in ("intra", "inter"):
        numbers = set(node[link]) - {"link", "rdma"}
        assert set(node[link]) == {"link"} or numbers == {"gbps", "efficiency", "latency_s"}
    if name in PUBLISHED:
        printed = compose({"cluster": name, "cluster.calibration": "published"})["cluster"]
        assert printed["source"].startswith(node["source"])
        assert len(printed["source"]) > len(node["source"]) + 20
        assert printed["inter"]["gbps"] == node["inter"]["gbps"]  # line rates are facts, not fits


def test_a_message_takes_its_time_to_be_issued_once_whatever_its_size_and_way():
    plain = cluster("acpsgd_10gbe")
    issued = replace(plain, message_us=70.0)
    for primitive, curve in issued.exchange().items():
        for size in (1.0, 1e6, GB):
            assert curve(size) == pytest.approx(plain.exchange()[primitive](size) + 70e-6), primitive
    # ACP-SGD section IV-B: 0.34 to 0.46 ms a call on 32 ranks
    published = cluster("acpsgd_10gbe", calibration="published")
    assert published.exchange()["all_reduce"](4) == pytest.approx(0.4e-3, rel=0.01)
    assert "70 us to issue a message" in system_on(published).origin.note
    # what was measured holds it, and one device alone issues nothing
    assert replace(issued, small_allreduce_us=300.0).exchange()["all_reduce"](1) == pytest.approx(300e-6, rel=1e-4)
    alone = replace(issued, nodes=1, devices_per_node=1)
    assert alone.exchange()["all_reduce"](1e6) == replace(alone, message_us=None).exchange()["all_reduce"](1e6)


def test_factors_apply_by_byte_to_their_primitive_only():
    node = cluster("s2reducer_10gbe")
    plain, factor = system_on(node).exchange, system_on(replace(node, factors={"all_gather": 1.375})).exchange
    for primitive in plain:
        expected = 1.375 if primitive == "all_gather" else 1.0
        slope = (factor[primitive](GB) - factor[primitive](1)) / (plain[primitive](GB) - plain[primitive](1))
        assert slope == pytest.approx(expected), primitive
        assert factor[primitive](0.001) == pytest.approx(plain[primitive](0.001)), primitive
    issued = system_on(replace(node, factors={"all_gather": 1.375}, message_us=70.0)).exchange
    assert factor.keys() == issued.keys()
    assert issued == system_on(cluster("s2reducer_10gbe", calibration="published")).exchange | {
        name: issued[name] for name in ("all_gather_v", "all_gather_twice")
    }


@pytest.mark.parametrize("name", PAPERS)
def test_more_bandwidth_is_never_slower(name):
    for link in ("intra", "inter"):
        rate = getattr(cluster(name), link).gbps
        slow, fast = (system_on(cluster(name, **{f"{link}__gbps": rate * k})).exchange for k in (1, 2))
        for primitive, curve in slow.items():
            assert fast[primitive](GB) <= curve(GB), (link, primitive)


def test_an_option_replaces_what_was_fitted():
    fitted = cluster("acpsgd_10gbe", calibration="published")
    chosen = cluster("acpsgd_10gbe", calibration="published", inter__efficiency=0.5)
    assert (fitted.inter.efficiency, chosen.inter.efficiency) == (0.94, 0.5)
    assert chosen.inter.latency_s == fitted.inter.latency_s


def test_wrong_values_are_one_line():
    with pytest.raises(ConfigError, match="unknown calibration 'publishd'; did you mean 'published'"):
        cluster("64gpu", calibration="publishd")
    with pytest.raises(ConfigError, match="cluster=64gpu has no recorded calibration"):
        cluster("64gpu", calibration="recorded")
    with pytest.raises(ConfigError, match=r"cluster\.nics_per_node must be a whole number of at least 1, got 0"):
        cluster("64gpu", nics_per_node=0)


@pytest.mark.parametrize("name", ["local", "emulated_4x1gbit"])
def test_a_recorded_system_is_used_where_there_is_one(name, monkeypatch):
    asked = []

    def recorded(*here):
        asked.append(here)
        return replace(system_on(cluster(name, calibration="nominal")), pcie_s_per_byte=42.0)

    monkeypatch.setattr(systems, "recorded_system", recorded)
    assert system_on(cluster(name)).pcie_s_per_byte == 42.0
    assert asked == [(name, cluster(name).world_size)]
    assert system_on(cluster(name, calibration="nominal")).pcie_s_per_byte == 0.0
    monkeypatch.setattr(systems, "recorded_system", lambda *_here: None)
    assert system_on(cluster(name)).origin.kind == "nominal"


def test_what_was_recorded_does_not_hold_on_other_links():
    assert cluster("local").calibration == "recorded"
    assert cluster("local", inter__gbps=1).calibration == "nominal"
    assert cluster("local", nodes=1, devices_per_node=4).calibration == "recorded"
    assert cluster("local", nodes=2).calibration == "nominal"
    assert cluster("emulated_4x1gbit", nodes=2, devices_per_node=2).calibration == "nominal"
    with pytest.raises(ConfigError, match=r"cluster\.inter\.gbps does not change what was recorded"):
        cluster("local", inter__gbps=1, calibration="recorded")


@pytest.mark.parametrize("calibration", ["recorded", "nominal"])
def test_gpus_that_are_here_never_get_the_times_of_a_cpu(calibration):
    """There are shipped systems of two and four ranks on a CPU."""
    link = Link(10, 1, 1e-5)
    here = Cluster("local", "", 1, 2, "cuda", link, link, "", calibration=calibration)
    with pytest.raises(ConfigError, match="about time on the cuda devices of cluster=local") as told:
        system_on(here)
    assert "cluster.device=a100|" in str(told.value)
    assert "ssfx profile" not in str(told.value)
    named = system_on(replace(here, device="a100"))
    assert (named.origin.kind, named.origin.hardware) == ("nominal", "2 x NVIDIA A100 80GB PCIe")


def test_a_ring_goes_at_the_pace_of_its_slowest_link():
    plain, wide = cluster("64gpu"), cluster("64gpu", inter__gbps=1000)
    assert (plain.bottleneck, plain.bottleneck_text) == (plain.inter, "200 Gbit/s")
    assert (wide.bottleneck, wide.bottleneck_text) == (wide.intra, "252 Gbit/s inside a node")
    assert "252 Gbit/s inside a node" in system_on(wide).origin.note
    several = cluster("64gpu", nics_per_node=4)  # together they carry more than what joins the devices
    assert several.bottleneck == several.intra
    single = cluster("64gpu", inter__gbps=1000, devices_per_node=1)  # nothing crosses the link inside
    assert single.bottleneck == single.inter
    for one in (plain, wide, several, single):
        curve = system_on(one).exchange["all_gather"]
        cards = one.nics_per_node if one.bottleneck == one.inter else 1
        per_byte = (curve(GB) - curve(1)) / (GB - 1)
        assert per_byte == pytest.approx((one.world_size - 1) * one.bottleneck.beta_s_per_byte / cards)


@pytest.mark.parametrize("key", ["gbps", "latency_s", "efficiency"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_link_takes_numbers_only_and_the_error_names_the_key(key, value):
    with pytest.raises(ConfigError, match=rf"cluster\.inter\.{key} must be .*, got {value:g}"):
        cluster("64gpu", **{f"inter__{key}": value})


def test_shares_of_computing_power_that_exchanges_take():
    assert set(system_on(cluster("64gpu")).contention.occupancy.values()) == {GPU_OCCUPANCY}
    slow, fast = (system_on(cluster("local", inter__gbps=1, intra__gbps=rate)) for rate in (1, 100))
    assert set(slow.contention.occupancy.values()) == {1 / CORE_GBPS}
    assert set(fast.contention.occupancy.values()) == {1.0}
    assert (slow.host_shares, system_on(cluster("64gpu")).host_shares) == (True, False)


def test_copies_to_the_host_cross_pcie():
    assert system_on(cluster("64gpu")).pcie_s_per_byte == pytest.approx(8 / (252e9 * 0.8))
    assert system_on(cluster("ssfusion_local")).pcie_s_per_byte == pytest.approx(8 / (126e9 * 0.8))


def test_a_system_survives_json():
    system = system_on(cluster("mergecomp_pcie", calibration="published"))
    assert TimingModel.from_json(system.to_json()) == system


def test_ranks_have_times_of_their_own():
    system = system_on(cluster("acpsgd_10gbe"))
    assert system.codec("acpsgd(rank=32)") is not system.codec("acpsgd")
    assert system.codec("acpsgd(rank=33)") is system.codec("acpsgd")
    assert system.codec("qsgd(bits=8)") is system.codec("qsgd")
    assert system.codec("acpsgd(min_compression_rate=0.0,rank=32)") is system.codec("acpsgd(rank=32)")
    assert system.codec("powersgd(rank=32,min_compression_rate=2)") is system.codec("powersgd(rank=32)")


@pytest.mark.parametrize("name", ["16gpu", "mergecomp_nvlink", "s2reducer_1gbe"])
def test_plans_run_in_virtual_time(name):
    profile = load_shipped("resnet_tiny")
    for options in ({}, {"calibration": "published"}):
        system = system_on(cluster(name, **options))
        plan = make_plan("per_tensor", profile, system.planning_costs("dgc", 0.01), {"density": 0.01})
        assert simulate(plan, profile, system).iteration_s > profile.forward_s + profile.backward_s


def test_no_torch():
    """The suite may have imported it; a fresh interpreter must not."""
    import subprocess

    code = (
        "import sys; from ssfx.perf_model.cluster import Cluster, Link; "
        "from ssfx.perf_model.build_timing_model import system_on; l = Link(10, 1, 1e-5);"
        "system_on(Cluster('x', '', 2, 2, 'a100', l, l, '')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
