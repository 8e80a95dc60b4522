"""The user's own nodes become a cluster file that advice can be asked about."""

from pathlib import Path

import pytest
import yaml
from processes import finished, torchrun

from ssfx.config.advice_question import resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.lab.calibration.cluster_import import cluster_text
from ssfx.lab.calibration.own_cluster import main, sheet_of
from ssfx.perf_model.exchange_tables import ExchangeTable


def test_the_file_says_what_was_measured_and_is_a_cluster(tmp_path):
    def table(ranks: int, gbps: float, least_us: float) -> ExchangeTable:
        large = 2**26
        most_us = 8e-3 * 2 * (ranks - 1) / ranks * large / gbps
        return ExchangeTable("all_reduce", ranks, 4, (4 * ranks, large), (least_us, most_us))

    text, notes = cluster_text([table(12, 20.0, 220), table(4, 90.0, 60)], "rtx3090", "NVIDIA GeForce RTX 3090", "mine")
    assert notes == []
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    said = yaml.safe_load(path.read_text())
    assert said["intra"] == {"gbps": 90.0, "efficiency": 1.0, "latency_s": 1e-5}
    assert said["inter"] == {"gbps": 20.0, "efficiency": 1.0, "latency_s": 1e-5, "rdma": False}
    cluster = resolve_setting(["model=resnet50", f"cluster={path}"]).cluster
    assert (cluster.world_size, cluster.devices_per_node, cluster.device) == (12, 4, "rtx3090")
    exchange = cluster.exchange()["all_reduce"]
    assert exchange(4) == pytest.approx(220e-6, rel=0.01)
    assert 2 * 11 / 12 * 8 * 2**30 / exchange(2**30) / 1e9 == pytest.approx(20.0, rel=0.05)


def test_devices_are_known_by_their_own_names():
    assert sheet_of("NVIDIA GeForce RTX 3090") == "rtx3090"
    assert sheet_of("NVIDIA A100 80GB PCIe") == "a100"
    assert sheet_of("NVIDIA H100 80GB HBM3") == "h100"
    assert sheet_of("cpu") == "cpu"
    with pytest.raises(ConfigError, match=r"no data sheet is known of Radeon; name the nearest by --device a100"):
        sheet_of("Radeon")


def test_without_torchrun_it_says_how(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    assert main([]) == 2
    assert "torchrun --nproc-per-node RANKS -m ssfx.lab.profile_network" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.torchrun
def test_ranks_measure_their_own_machine(tmp_path):
    words = ["-m", "ssfx.lab.profile_network", "--mib", "1", "--out", "mine.yaml"]
    done = finished(torchrun(tmp_path, *words), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = yaml.safe_load(Path(tmp_path, "mine.yaml").read_text())
    assert (said["nodes"], said["devices_per_node"], said["device"]) == (1, 2, "cpu")
    assert said["inter"]["gbps"] > 0
    assert "cluster=mine.yaml" in done.stdout
    tables = {one["collective"]: one for one in said["exchanges"]}
    assert set(tables) == {"all_reduce", "all_gather", "alltoall"}
    for one in tables.values():
        assert one["bytes"] == [8 * 4**power for power in range(9)]
        assert (one["ranks"], one["ranks_per_node"], one["library"]) == (2, 2, "gloo")
    cluster = resolve_setting(["model=resnet50", f"cluster={tmp_path / 'mine.yaml'}"]).cluster
    assert set(cluster.tabled.measured) == {"all_reduce", "all_gather", "all_to_all"}
