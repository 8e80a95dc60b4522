"""What a dropped exchange leaves: a model may go without `detach`, and takes its threads and its place in line along.

A script that makes one model after another (a search, a test, a notebook) forgets `detach`. Model, optimizer and
exchange refer to one another, so they go when Python collects garbage, on each rank at a moment of its own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import finalize

from ssfx.collectives.comm import Comm
from ssfx.runtime.exchange import Exchange
from ssfx.runtime.liveness import Peers
from ssfx.runtime.offload import HostWorker
from ssfx.runtime.queue import ExchangeQueue

if TYPE_CHECKING:
    from ssfx.runtime.sync import Sync


def when_dropped(sync: Sync, exchange: Exchange, peers: Peers) -> finalize[..., Any]:
    """Return what ends the threads of `sync` and frees its process group once nothing refers to it any more."""
    ending = finalize(sync, _let_go, os.getpid(), exchange.queue, exchange.host, exchange.comm, peers)
    ending.atexit = False  # a process that ends says so to its peers itself
    return ending


def _let_go(process: int, queue: ExchangeQueue, host: HostWorker, comm: Comm, peers: Peers) -> None:
    if process != os.getpid():  # a child that was forked, and has none of the threads
        return
    idle = queue.idle
    queue.stop()
    host.close(wait=False)
    with suppress(Exception):  # the store may have gone first, and then the note is never read
        peers.close("has dropped its model")
    if idle:  # else a peer may still be sending, and the next exchange would take that for its own
        comm.release()
