"""Runs on emulated hosts: real namespaces, real shaping, real ranks; nothing may be left of them."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from engines.helpers import make_case, phases
from processes import HANG_S, wait_until

from ssfx.core.errors import RunError
from ssfx.lab.engines import netns
from ssfx.lab.engines.hosts import INTERFACE, Hosts, Network, missing
from ssfx.lab.engines.netns import Netns
from ssfx.lab.worker.heartbeat import read_beat

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no hosts can be emulated here: {missing()}")
FAKE = "fake_train:train"
SLOW = Network(2, 0.1)


def emulated_case(**changes):
    return make_case(**{"cluster": "emulated_2x100mbit", **changes})


def devices() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


@pytest.fixture(autouse=True)
def nothing_left(started):
    """Afterwards nothing that a test started is left, and the machine's own network is as it was."""
    before = devices()
    named = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    yield
    assert started.left() == []
    assert devices() == before
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout == named


def test_hosts_carry_what_was_asked_for_and_the_root_namespace_has_no_device_of_them(started):
    before = devices()
    with Hosts(SLOW) as hosts:
        assert devices() == before
        assert len(started.left()) == 3  # two hosts and the switch
        assert [0.085 <= rate <= 0.115 for rate in netns.measure(hosts)] == [True, True]


def test_a_line_that_is_not_shaped_is_found_out(monkeypatch):
    monkeypatch.setattr(Network, "bucket", lambda self, device: f"qdisc add dev {device} root pfifo")
    with Hosts(SLOW) as hosts, pytest.raises(RunError, match=r"host 0 carries .* instead of 0\.1: it is not shaped"):
        netns.measure(hosts)


def test_hosts_that_cannot_reach_each_other_are_found_out(monkeypatch):
    monkeypatch.setattr(netns, "_TIMEOUT_S", 0.3)
    with Hosts(SLOW) as hosts:
        subprocess.run(hosts.inside(1, ["ip", "link", "set", "dev", INTERFACE, "down"]), check=True)
        with pytest.raises(RunError, match="emulated host 0 cannot reach host 1"):
            netns.measure(hosts)


@pytest.mark.nightly
@pytest.mark.torchrun
@pytest.mark.slow
def test_cases_share_a_launch_and_their_rows_say_emulated_and_what_was_measured(store, capfd):
    cases = [emulated_case(seed=seed) for seed in (1, 2)]
    rows = Netns(train=FAKE).run(cases, store)
    assert [row.origin.kind for row in rows] == ["emulated"] * 2
    assert len(list(store.runs.glob("*/attempt-1/batch.json"))) == 1
    lines = capfd.readouterr().err.splitlines()
    assert "netns: 2 case(s) on 2 cpu rank(s)" in lines[0]
    assert "emulated: 2 hosts at 0.1 Gbit/s, measured 0.09" in lines[1]
    network = rows[1].manifest["network"]
    measured = network.pop("measured_link_gbps")
    assert network == {"hosts": 2, "link_gbps": 0.1, "burst_bytes": 65536}
    assert len(measured) == 2
    assert all(0.085 <= rate <= 0.115 for rate in measured)
    assert rows[1].manifest["environment"]["GLOO_SOCKET_IFNAME"] == INTERFACE


@pytest.mark.torchrun
@pytest.mark.slow
@pytest.mark.nightly
def test_the_rank_that_failed_is_named(store, monkeypatch):
    monkeypatch.setenv("SSFX_FAULT", "kill:rank=1,step=4,phase=backward")
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL in backward at step 4"):
        Netns(train=FAKE).run([emulated_case()], store, progress=False)
    assert store.status(emulated_case()) == "failed"


@pytest.mark.torchrun
@pytest.mark.slow
@pytest.mark.nightly
def test_a_host_that_is_lost_is_named_and_ends_everything(store, started, monkeypatch):
    monkeypatch.setenv("FAKE_HOLD", str(store.runs / "never"))  # ranks wait in their third step
    monkeypatch.setattr("ssfx.lab.engines.launch.GRACE_S", 2.0)  # a torchrun that waits for the lost one needs SIGKILL
    case = emulated_case(cluster="emulated_2x100mbit(devices_per_node=2)", world_size=4)

    def power_off():
        wait_until(lambda: [step for step, _ in phases(store.runs, 4)] == [2] * 4)
        beats = [read_beat(store.run_dir(case) / "attempt-1", rank) for rank in range(4)]
        places = [Path(f"/proc/{beat.pid}/ns/net").readlink() for beat in beats]
        assert len(set(places)) == 2
        lost.append({rank for rank, place in enumerate(places) if place == places[3]})
        for process in started.left():
            if Path(f"/proc/{process.pid}/ns/net").readlink() == places[3]:
                process.kill()

    lost = []
    thread = threading.Thread(target=power_off)
    thread.start()
    with pytest.raises(
        RunError, match=r"failed: host \d was lost, with ranks (\d), (\d), in \w+ at step 2; see"
    ) as caught:
        Netns(train=FAKE).run([case], store, progress=False)
    thread.join()
    named = re.search(r"with ranks (\d), (\d)", str(caught.value)).groups()
    assert set(map(int, named)) == lost[0]
    assert started.left() == []
    assert store.status(case) == "failed"


@pytest.mark.torchrun
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.nightly
def test_a_launcher_that_is_ended_takes_everything_with_it(started, tmp_path, number):
    command = "import sys; from ssfx.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["run", "scheme=ddp", "cluster=emulated_2x100mbit", "steps=100000"]
    launcher = started.start(
        [sys.executable, "-c", command, *words],
        env={**os.environ, "SSFX_RESULTS": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def ranks_run() -> bool:
        assert launcher.poll() is None, launcher.stderr.read()
        return len(list(tmp_path.glob("runs/*/attempt-1/rank*.state"))) == 2

    wait_until(ranks_run)
    assert len(started.left()) >= 6
    launcher.send_signal(number)
    launcher.wait(HANG_S)
    assert launcher.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    wait_until(lambda: started.left() == [])
