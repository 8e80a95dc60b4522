"""What a launch offers to the network: on one machine nothing, between nodes nothing that is unpickled."""

import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from engines.helpers import HERE, make_case, phases
from processes import HANG_S, wait_until

from ssfx.lab.engines import allocation
from ssfx.lab.engines.hosts import missing
from ssfx.lab.engines.launch import TEMPORARY

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]
_LISTENS = "0A"
MAIN = "import sys; from ssfx.cli import main; sys.exit(main(sys.argv[1:]))"


def sockets_of(process: psutil.Process) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the addresses that a process listens on, read from the network namespace that it is in."""
    try:
        own = set()
        for path in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                own.add(str(path.readlink()))
        for family in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process.pid}/net/{family}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and f"socket:[{words[9]}]" in own:
                    yield _address(words[1].partition(":")[0])
    except (OSError, psutil.Error):  # it has ended
        return


def _address(said: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address as the kernel writes it: words of four bytes, each in the machine's order."""
    words = [bytes.fromhex(said[start : start + 8]) for start in range(0, len(said), 8)]
    address = ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))
    return getattr(address, "ipv4_mapped", None) or address


def here(process: psutil.Process) -> bool:
    """Return whether a process is in the machine's own network, not on an emulated host."""
    try:
        return Path(f"/proc/{process.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def test_what_is_read_of_the_kernel_are_the_addresses_that_are_listened_on():
    me = psutil.Process()
    with socket.create_server(("127.0.0.1", 0)), socket.create_server(("::", 0), family=socket.AF_INET6):
        assert {str(address) for address in sockets_of(me)} >= {"127.0.0.1", "::"}


def offered(started) -> list[str]:
    """Return the addresses at which others than this machine could reach what a test has started."""
    listens = [address for process in started.left() if here(process) for address in sockets_of(process)]
    return [str(address) for address in listens if not address.is_loopback]


@pytest.mark.nightly
def test_nothing_that_measures_one_machine_listens_on_another_address_than_the_loopback(started, tmp_path):
    words = ["profile", "network", "cluster=local", "world_size=2"]
    launcher = started.start(
        [sys.executable, "-c", MAIN, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SSFX_RESULTS": str(tmp_path)},
    )

    def ranks_exchange() -> bool:
        """Every rank has its sockets."""
        assert launcher.poll() is None, launcher.stderr.read()
        assert offered(started) == []
        return sum(any(sockets_of(process)) for process in started.left()) >= 2

    wait_until(ranks_exchange)


@pytest.fixture
def held(store, started, tmp_path):
    """Return what starts the launcher of a case whose ranks wait in their third step, until it gets a file's name."""

    def start(case, attempt, **environment):
        command = [sys.executable, str(HERE / "drive.py"), str(store.runs.parent), case.to_json()]
        environment = {**os.environ, "FAKE_HOLD": str(tmp_path / "go on"), **environment}
        launcher = started.start(command, env=environment, stderr=subprocess.PIPE, text=True)

        def waits() -> bool:
            assert launcher.poll() is None, launcher.stderr.read()
            assert offered(started) == []
            beats = phases(store.runs, case.world_size, f"attempt-{attempt}")
            return [step for step, _ in beats] == [2] * case.world_size

        wait_until(waits)
        return launcher

    return start


CLUSTERS = [
    "local",
    pytest.param(
        "emulated_2x100mbit", marks=pytest.mark.skipif(bool(missing()), reason=f"no hosts can be emulated: {missing()}")
    ),
]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.nightly
def test_what_ranks_meet_under_is_random_and_seen_by_no_other_user(store, started, held, tmp_path, cluster):
    case, seen = make_case(cluster=cluster), set()
    last = 2 if cluster == "local" else 1
    for attempt in range(1, last + 1):
        launcher = held(case, attempt, DRIVE_ENGINE="netns" if cluster != "local" else "torchrun")
        found = {process.environ().get("TORCHELASTIC_RUN_ID") for process in started.left()}
        (one,) = found - {None}
        assert re.fullmatch("[0-9a-f]{32}", one)
        assert one not in seen
        seen.add(one)
        lines = [" ".join(process.cmdline()) for process in started.left()]
        assert not [line for line in lines if one in line]
        assert not [line for line in lines if "rdzv-backend=c10d" in line and "store_type=file" not in line]
        assert (store.run_dir(case) / f"attempt-{attempt}" / TEMPORARY).stat().st_mode & 0o777 == 0o700
        if attempt < last:
            launcher.terminate()
        else:
            (tmp_path / "go on").touch()
        said = launcher.communicate(timeout=HANG_S)[1]
        assert launcher.returncode == (0 if attempt == last else 143), said
        assert not any(one in said for one in seen)
    files = [path for path in store.runs.parent.rglob("*") if path.is_file()]
    assert store.run_dir(case) / "row.json" in files
    for path in files:
        assert not any(one.encode() in path.read_bytes() for one in seen), path
        assert not any(one in str(path) for one in seen)


def test_nodes_of_an_allocation_meet_at_a_random_port(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    job = type("Job", (), {"case": make_case(), "attempt": 1, "attempt_dir": tmp_path, "run_dir": tmp_path})
    lines, ids = [], set()
    for _ in range(8):
        launch = allocation.NodesLaunch([job], "train", None, None, None, None)
        ((command, variables),) = launch._commands(tmp_path / "batch.json")
        lines.append(command[-1])
        assert "PET_RDZV_ID" not in variables, "which a row shows"
        ids.add(launch._variables["PET_RDZV_ID"])
    ports = {int(re.search(r"--master-port=(\d+)", line)[1]) for line in lines}
    assert len(ports) > 1
    assert len(ids) == 8
    assert all("--rdzv-backend=static" in line and '"--node-rank=$SLURM_NODEID"' in line for line in lines)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    ((command, _),) = allocation.NodesLaunch([job], "train", None, None, None, None)._commands(tmp_path / "batch.json")
    assert "store_type=file" in command[-1]
    assert "master" not in json.dumps(command)
