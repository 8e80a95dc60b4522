"""What the lines of emulated hosts carry, measured: a row may only say "emulated" where the shaping is there."""

import socket
import threading
import time
from contextlib import ExitStack, suppress

from ssfx.core.errors import RunError
from ssfx.lab.engines.hosts import Hosts, Network

TOLERANCE = 0.15
CERTAIN_GBPS = 1.0
"""Up to this rate a line that is too slow is an error; above it the cores may be what is slow."""

_SECONDS = 0.15
_TRIES = 10
"""A reader that the system keeps waiting finds bytes that came earlier: on a busy machine some tries seem too fast."""
_CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 20.0


def measure(hosts: Hosts) -> list[float]:
    """Return the Gbit/s of payload that each host's line carries, measured by sending to the next host, one at a time.

    Of some tries the one nearest to the network's rate counts. RunError when that is faster by more than TOLERANCE: the
    shaping does not work. The same when it is that much slower, unless the network is asked for more than CERTAIN_GBPS.
    """
    wanted = hosts.network.gbps
    rates = []
    for host in range(hosts.network.hosts):
        tries: list[float] = []
        while len(tries) < _TRIES and not any(abs(rate - wanted) <= TOLERANCE * wanted for rate in tries):
            tries.append(one_way_gbps(hosts, host, (host + 1) % hosts.network.hosts))
        nearest = min(tries, key=lambda rate: abs(rate - wanted))
        _check(hosts.network, host, nearest)
        rates.append(round(nearest, 4))
    return rates


def too_slow(network: Network, rates: list[float]) -> bool:
    """True when a line that was let pass carries less than was asked for by more than TOLERANCE."""
    return min(rates) < network.gbps * (1 - TOLERANCE)


def _check(network: Network, host: int, rate: float) -> None:
    fast = rate > network.gbps * (1 + TOLERANCE)
    if fast or (too_slow(network, [rate]) and network.gbps <= CERTAIN_GBPS):
        raise RunError(
            f"the line of emulated host {host} carries {rate:.3g} Gbit/s instead of {network.gbps:g}: "
            + ("it is not shaped" if fast else "the machine is too busy or too slow for it")
        )


def one_way_gbps(hosts: Hosts, source: int, target: int) -> float:
    """Return the rate at which `target` receives from `source` over one TCP connection, the bursts left out."""
    skipped_bytes = 2 * hosts.network.burst_bytes + _CHUNK_BYTES
    total_bytes = skipped_bytes + int(hosts.network.gbps * 1e9 / 8 * _SECONDS)
    try:
        with ExitStack() as stack:
            sender, receiver = _connected(hosts, source, target, stack)
            thread = threading.Thread(target=_send, args=(sender, total_bytes))
            thread.start()
            stack.callback(thread.join)
            stack.callback(receiver.close)  # first, so that the thread does not wait for a reader that has given up
            return _rate_gbps(receiver, skipped_bytes, total_bytes)
    except OSError as error:
        raise RunError(f"emulated host {source} cannot reach host {target}: {error}") from None


def _connected(hosts: Hosts, source: int, target: int, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection, closed by `stack`."""
    listener, sender = (stack.enter_context(hosts.socket(host)) for host in (target, source))
    for one in (listener, sender):
        one.settimeout(_TIMEOUT_S)
    listener.bind((hosts.address(target), 0))  # any free port
    listener.listen(1)
    sender.connect(listener.getsockname())
    receiver = stack.enter_context(listener.accept()[0])
    receiver.settimeout(_TIMEOUT_S)
    return sender, receiver


def _send(sender: socket.socket, total_bytes: int) -> None:
    with suppress(OSError):  # the receiver sees it too, and says so
        for _ in range(0, total_bytes, _CHUNK_BYTES):
            sender.sendall(bytes(_CHUNK_BYTES))


def _rate_gbps(receiver: socket.socket, skipped_bytes: int, total_bytes: int) -> float:
    buffer = bytearray(_CHUNK_BYTES)
    got = counted_from = 0
    start = 0.0
    while got < total_bytes:
        more = receiver.recv_into(buffer)
        if not more:
            raise ConnectionError("the connection was closed")
        got += more
        if not counted_from and got >= skipped_bytes:
            counted_from, start = got, time.perf_counter()
    return (got - counted_from) * 8e-9 / (time.perf_counter() - start)
