"""A persistent pool of gloo processes: starting one costs seconds, so every test of the runtime shares it."""

import importlib
import os
import queue
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from processes import HANG_S

PEERS_S = 10.0
"""Seconds that the peers of a failed rank have to say what they know of it; they may wait for it for ever."""
second_groups: dict[int, Any] = {}
"""On a rank: groups beside those that work is given, by the number of ranks, for the exchange of a second model."""


def _serve(rank: int, size: int, store_file: str, environment: dict[str, str], inbox: Any, outbox: Any) -> None:
    # The process that ranks are forked from keeps the environment of the first pool.
    os.environ.update(environment, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store_file}", rank=rank, world_size=size)
    groups = {world: dist.new_group(list(range(world))) for world in range(1, size + 1)}
    second_groups.update({world: dist.new_group(list(range(world))) for world in range(2, size + 1)})
    while True:
        task = inbox.get()
        if task is None:
            os._exit(0)  # nothing is worth the seconds that an orderly end of torch takes
        module, name, world, args = task
        try:
            work = getattr(importlib.import_module(module), name)
            outbox.put((rank, True, work(groups[world], rank, world, *args)))
        except BaseException:
            outbox.put((rank, False, traceback.format_exc()))


class Pool:
    """`run(work, world, *args)` calls work(group, rank, world, *args) on ranks 0..world-1 and returns their results.

    A rank that raises fails the call with its traceback. After any failure the pool is started anew, so that the next
    call meets no message or thread of this one. Ranks see the variables of `environment` with those that they inherit.
    """

    def __init__(self, size: int, environment: dict[str, str] | None = None) -> None:
        self.size = size
        self._environment = environment or {}
        self._start()

    def _start(self) -> None:
        # Ranks are forked from one process that has imported torch, which takes seconds, and done nothing else yet.
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([__name__, "torch._dynamo", "ssfx.runtime.sync"])
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        self._inboxes = [context.SimpleQueue() for _ in range(self.size)]
        self._outbox = context.Queue()
        self._processes = [
            context.Process(
                target=_serve,
                args=(r, self.size, store, self._environment, self._inboxes[r], self._outbox),
                daemon=True,
            )
            for r in range(self.size)
        ]
        for process in self._processes:
            process.start()

    def run(self, work: Callable[..., Any], world: int, *args: Any) -> list[Any]:
        for rank in range(world):
            self._inboxes[rank].put((work.__module__, work.__qualname__, world, args))
        try:
            return self._answers(world)
        except BaseException:
            self.close(force=True)
            self._start()
            raise

    def _answers(self, world: int) -> list[Any]:
        results: dict[int, Any] = {}
        failures: dict[int, str] = {}
        while len(results) + len(failures) < world:
            try:
                rank, good, value = self._outbox.get(timeout=PEERS_S if failures else HANG_S)
            except queue.Empty:
                break
            (results if good else failures)[rank] = value
        silent = set(range(world)) - set(results) - set(failures)
        failures |= {rank: f"it did not answer; its exit code is {self._processes[rank].exitcode}" for rank in silent}
        if failures:
            raise AssertionError("\n".join(f"rank {r}:\n{text}" for r, text in sorted(failures.items())))
        return [results[rank] for rank in range(world)]

    def close(self, force: bool = False) -> None:
        for inbox, process in zip(self._inboxes, self._processes, strict=True):
            if force:
                process.kill()
            else:
                inbox.put(None)
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._folder.cleanup()


class Pools:
    """A pool of three processes for most tests and one of six for larger worlds, each started when first needed."""

    def __init__(self) -> None:
        self._pools: dict[int, Pool] = {}

    def run(self, work: Callable[..., Any], world: int, *args: Any) -> list[Any]:
        size = 3 if world <= 3 else 6
        if size not in self._pools:
            self._pools[size] = Pool(size)
        return self._pools[size].run(work, world, *args)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
