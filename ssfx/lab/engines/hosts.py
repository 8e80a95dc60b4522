"""Emulated hosts: network namespaces on this machine, joined by a switch, their lines shaped by token buckets.

A namespace here has no name. It belongs to a holder process that ends when its standard input closes, which the kernel
does when this process ends for any reason. Namespaces and devices go with their last process, so nothing is ever
left to clean up. The switch has a namespace of its own: the machine's own network is not touched.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import CDLL, get_errno
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ssfx.core.errors import ConfigError, RunError

INTERFACE = "eth0"
"""The line of each host, as it is called inside its namespace."""
QUEUE_BYTES = 64 * 2**20
TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")

_PRESET = re.compile(r"emulated_(\d+)x(\d+)(mbit|gbit)")
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Network:
    """`hosts` hosts on one switch, each with a full-duplex line of `gbps` Gbit/s."""

    hosts: int
    gbps: float

    @classmethod
    def of(cls, cluster: str) -> Network | None:
        """Return the network of a cluster called emulated_{hosts}x{rate}, None for any other name."""
        found = _PRESET.fullmatch(cluster)
        return cls(int(found[1]), int(found[2]) / (1000 if found[3] == "mbit" else 1)) if found else None

    @classmethod
    def here(cls, cluster: str) -> Network | None:
        """Return the same; ConfigError where this machine cannot emulate it."""
        network = cls.of(cluster)
        if network and (problem := missing()):
            raise ConfigError(f"cluster={cluster} cannot be emulated here, {problem}; use cluster=local")
        return network

    @property
    def burst_bytes(self) -> int:
        """Bytes that an idle line lets through at memory speed: as few as cost no throughput."""
        return 64 * 1024 if self.gbps <= 0.1 else 256 * 1024 if self.gbps <= 1 else 1024 * 1024

    def bucket(self, device: str) -> str:
        """Return the command of tc that shapes what leaves `device`; its queue holds more than TCP has under way."""
        rate = f"{self.gbps * 1000:.0f}mbit"
        return f"qdisc add dev {device} root tbf rate {rate} burst {self.burst_bytes} limit {QUEUE_BYTES}"


class Hosts:
    """The hosts of `network`, as a context: they exist inside it and are gone afterwards."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._hosts: list[_Holder] = []
        self._stack = ExitStack()

    def __enter__(self) -> Hosts:
        with ExitStack() as stack:
            switch = stack.enter_context(_Holder())
            hosts = [stack.enter_context(_Holder()) for _ in range(self.network.hosts)]
            ports = [f"port{host}" for host in range(len(hosts))]
            _configure(switch, "ip", ["link add name switch type bridge", "link set dev switch up"])
            for holder, port in zip(hosts, ports, strict=True):
                pair = f"link add name {port} type veth peer name {INTERFACE} netns {holder.pid}"
                _configure(switch, "ip", [pair, f"link set dev {port} master switch up"])
            # A line is full-duplex: the bucket of the host shapes what it sends, that of its port what it gets.
            _configure(switch, "tc", [self.network.bucket(port) for port in ports])
            for host, holder in enumerate(hosts):
                up = [f"link set dev {device} up" for device in ("lo", INTERFACE)]
                _configure(holder, "ip", [*up, f"address add {self.address(host)}/24 dev {INTERFACE}"])
                _configure(holder, "tc", [self.network.bucket(INTERFACE)])
            self._hosts = hosts
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def address(self, host: int) -> str:
        """Return the address of `host`; only the other hosts can reach it."""
        return f"10.0.0.{host + 1}"

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """Return `command` so that it runs on `host`, in the same process id."""
        return self._hosts[host].inside(command)

    def holding(self, pid: int) -> int | None:
        """Return the host that process `pid` runs on, None when it is gone or runs on none of them."""
        places = [_namespace(holder.pid) for holder in self._hosts]
        place = _namespace(pid)
        return places.index(place) if place in places and place else None

    def socket(self, host: int) -> socket.socket:
        """Return a new TCP socket on `host`, which any thread of this process may use."""
        made: list[socket.socket | OSError] = []

        def make() -> None:  # A socket stays where it was made; only this thread, which then ends, changes its place.
            try:
                with Path(f"/proc/{self._hosts[host].pid}/ns/net").open() as namespace:
                    if CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(get_errno(), "setns")
                made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


class _Holder:
    """A process in a network namespace of its own, which it keeps alive until its standard input closes."""

    def __enter__(self) -> _Holder:
        # A session of its own: Ctrl-C must reach the launcher alone, which then ends the hosts in the right order.
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout
        said = self._process.stdout.readline()
        if said != b"\n":  # an empty line says that the namespace is there
            self.__exit__()
            raise RunError(f"no network namespace can be made: {said.decode(errors='replace').strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *command]


def _configure(where: _Holder, tool: str, lines: Sequence[str]) -> None:
    done = subprocess.run(
        where.inside([tool, "-batch", "-"]), input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunError(f"{tool} could not set up an emulated host: {_first_line(done.stderr)}")


_TRY = (
    "ip link add name try0 type bridge && ip link add name try1 type veth peer name try2 && "
    f"tc {Network(2, 1.0).bucket('try1')}"
)


@cache
def missing() -> str:
    """Return what keeps this machine from emulating hosts, "" if nothing; it is tried, in a namespace of its own."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"it needs {', '.join(absent)} (packages iproute2 and util-linux)"
    done = subprocess.run(["unshare", "--net", "sh", "-c", _TRY], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"it needs root, and a kernel with bridge, veth and tbf ({_first_line(done.stderr)})"
    return ""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "it gave no reason")
