"""Names, shaping commands, the rule for measured rates and refusals; no namespace is made, no rights are needed."""

import os
import subprocess
from types import SimpleNamespace

import pytest
from engines.helpers import make_case

from ssfx.config.compose import compose
from ssfx.config.groups import choices
from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.config.here import engine_of
from ssfx.lab.engines import hosts, netns
from ssfx.lab.engines.hosts import Hosts, Network, missing
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import TEMPORARY
from ssfx.lab.engines.netns import HostsLaunch, Netns
from ssfx.lab.results.store import RunLock, Store
from ssfx.lab.worker.heartbeat import Beat
from ssfx.perf_model.cluster_file import cluster_of

PRESETS = [name for name in choices("cluster") if name.startswith("emulated_")]


@pytest.fixture
def here(monkeypatch):
    """What is missing is asked anew, and answered by the test."""
    missing.cache_clear()
    yield monkeypatch
    missing.cache_clear()


def test_there_are_nine_presets():
    assert len(PRESETS) == 9


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_its_name_says(name):
    cluster = cluster_of(compose({"cluster": name})["cluster"], None, "auto")
    assert Network.of(name) == Network(cluster.world_size, cluster.inter.gbps)
    assert cluster.name == name
    assert cluster.devices_per_node == 1
    assert cluster.device == "cpu"
    assert cluster.intra == cluster.inter
    assert f"{cluster.nodes} hosts" in cluster.summary


def test_other_clusters_are_not_emulated():
    assert [Network.of(name) for name in ("local", "64gpu", "emulated_2x1gbits", "emulated_x1gbit")] == [None] * 4


@pytest.mark.parametrize(("gbps", "rate", "burst"), [(0.1, 100, 65536), (1.0, 1000, 262144), (10.0, 10000, 1048576)])
def test_shaping_by_rate(gbps, rate, burst):
    assert Network(2, gbps).bucket("eth0").startswith(f"qdisc add dev eth0 root tbf rate {rate}mbit burst {burst} ")


class FakeHosts:
    def __init__(self, gbps):
        self.network = Network(2, gbps)


def rates(monkeypatch, *answers):
    waiting = iter(answers)
    monkeypatch.setattr(netns, "one_way_gbps", lambda *_: next(waiting))


def test_a_disturbed_measurement_is_repeated(monkeypatch):
    rates(monkeypatch, 0.95, 0.5, 1.7, 0.6, 0.9)
    assert netns.measure(FakeHosts(1.0)) == [0.95, 0.9]


def test_a_line_that_stays_too_slow_is_an_error_up_to_1_gbps(monkeypatch):
    rates(monkeypatch, 0.95, 0.5, 0.84, *[0.7] * 8)
    with pytest.raises(RunError, match=r"host 1 carries 0\.84 Gbit/s instead of 1: the machine is too busy"):
        netns.measure(FakeHosts(1.0))


def test_a_line_that_stays_too_slow_is_recorded_above_1_gbps(monkeypatch):
    rates(monkeypatch, 9.5, 5, 7, *[6] * 8)
    measured = netns.measure(FakeHosts(10.0))
    assert measured == [9.5, 7]
    assert netns.too_slow(Network(2, 10.0), measured)
    assert not netns.too_slow(Network(2, 10.0), [8.6, 9.5])


@pytest.mark.parametrize("gbps", [0.1, 1.0, 10.0])
def test_a_line_that_is_too_fast_is_always_an_error(monkeypatch, gbps):
    rates(monkeypatch, *[1.16 * gbps] * 10)
    with pytest.raises(RunError, match="it is not shaped"):
        netns.measure(FakeHosts(gbps))


def test_without_linux_tools_or_rights_a_run_is_refused_in_one_line(here):
    words = ["scheme=ddp", "cluster=emulated_2x1gbit"]
    with here.context() as patched:
        patched.setattr(hosts.shutil, "which", lambda tool: None if tool in ("ip", "tc") else tool)
        with pytest.raises(ConfigError, match=r"cannot be emulated here, it needs ip, tc .*; use cluster=local"):
            resolve_job(words)
    missing.cache_clear()
    refusal = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    with here.context() as patched:
        patched.setattr(hosts.shutil, "which", lambda tool: tool)
        patched.setattr(hosts.subprocess, "run", lambda *_, **__: refusal)
        with pytest.raises(ConfigError, match=r"needs root.*\(unshare: unshare failed: Op.*\); use cluster=local$"):
            resolve_job(words)
    missing.cache_clear()
    here.setattr(hosts.sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="it needs Linux; use cluster=local"):
        resolve_job(words)


def test_the_engine_follows_the_cluster_and_another_is_refused():
    assert engine_of("auto", ["local"]) == "torchrun"
    assert engine_of("auto", ["emulated_4x1gbit"]) == engine_of("netns", ["emulated_4x1gbit"]) == "netns"
    with pytest.raises(ConfigError, match="engine=torchrun does not run cluster=emulated_4x1gbit; use engine=netns"):
        engine_of("torchrun", ["emulated_4x1gbit"])


def test_the_engine_itself_refuses_other_clusters(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ConfigError, match="cluster=local is not an emulated one"):
        Netns().run([make_case()], store, progress=False)
    assert store.claim(make_case()) is not None


def test_a_host_that_is_lost_is_named_with_its_ranks(tmp_path, monkeypatch):
    claim = RunLock.take(tmp_path / "run")
    job = Job(make_case(cluster="emulated_2x1gbit", world_size=4), claim, 1)
    job.attempt_dir.mkdir()
    launch = HostsLaunch([job], "", None, None, None, None)
    launch._host_of = {os.getpid(): 1}
    monkeypatch.setattr(
        job, "beats", lambda: {rank: Beat(os.getpid() if rank > 1 else 1, 4, "exchange") for rank in range(4)}
    )
    assert str(launch._diagnose(job, [None, -9])) == "host 1 was lost, with ranks 2, 3, in exchange at step 4"
    claim.release()


def test_several_ranks_on_each_host_are_asked_for_as_on_a_cluster(tmp_path):
    case = resolve_job(["scheme=ddp", "cluster=emulated_2x1gbit", "cluster.devices_per_node=3"]).cases[0]
    assert (case.world_size, str(case.cluster)) == (6, "emulated_2x1gbit(devices_per_node=3)")
    claim = RunLock.take(tmp_path / "run")
    launch = HostsLaunch([Job(case, claim, 1)], "", None, None, None, None)
    launch._hosts = Hosts(Network(2, 1.0))
    launch._hosts._hosts = [SimpleNamespace(inside=list)] * 2
    commands = [command for command, _ in launch._commands(tmp_path / "batch.json")]
    for host, command in enumerate(commands):
        assert command[5:] == [
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc-per-node=3",
            "--rdzv-backend=static",
            "--master-addr=10.0.0.1",
            "--master-port=29500",
            "--max-restarts=0",
            f"--log-dir={tmp_path / 'run' / 'attempt-1' / TEMPORARY}",
            f"--node-rank={host}",
            "-m",
            "ssfx.lab.worker.rank",
            str(tmp_path / "batch.json"),
        ]
    claim.release()
