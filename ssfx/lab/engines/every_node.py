"""One process on every node of a job that another launcher than Slurm started (SkyPilot, Kubeflow Trainer, by hand).

`python -m ssfx.lab.engines.every_node sweep.json --nodes N --rank R --address HOST --port P`, on nodes that share a results
folder. The process on node 0 runs the cases one after the other and writes rows; it tells the others, through a store
at HOST and P, what to start. Ranks of several nodes meet at P + 1.
"""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import RunError, SsfxError
from ssfx.core.files import read_json
from ssfx.lab.engines.allocation import NodesLaunch
from ssfx.lab.engines.launch import worker
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store

MEETING = timedelta(minutes=30)
"""How long nodes wait for each other at the beginning."""
PATIENCE = timedelta(days=7)
"""How long a node waits for word from the first; one that is gone is noticed at once."""
LEAVING = timedelta(minutes=1)
"""How long the first node keeps the store for others that have not heard the end yet."""
END = b"end"
_SIGNATURE_BYTES = 32


class Nodes:
    """The nodes of this job, and the words that the first one gives to the others.

    A word is a command, and whoever reaches the store can write to it: words are signed with the key of the sweep.
    """

    def __init__(self, nodes: int, rank: int, address: str, port: int, key: str) -> None:
        self.nodes, self.rank, self.address, self.port = nodes, rank, address, port
        self._key = key.encode()
        self._said = 0
        self._store: Any = None
        if nodes > 1:
            import torch.distributed as dist  # late: a job of one node needs no store

            self._store = dist.TCPStore(  # type: ignore[attr-defined]
                address, port, nodes, rank == 0, timeout=MEETING
            )
            self._store.set_timeout(PATIENCE)

    def say(self, word: bytes) -> None:
        """Every other node hears `word` next."""
        if self._store is not None:
            self._store.set(f"word-{self._said}", self._signature(word) + word)
        self._said += 1

    def hear(self) -> bytes:
        """Return the next word of the first node, once it is said; RunError for one that it did not sign."""
        signed: bytes = self._store.get(f"word-{self._said}")
        signature, word = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(word)):
            raise RunError("what to start is not signed with the key of this sweep; nothing was started")
        self._said += 1
        return word

    def _signature(self, word: bytes) -> bytes:
        return hmac.digest(self._key, b"%d " % self._said + word, "sha256")

    def leave(self) -> None:
        """Return on the first node, which has the store, when all have come to this."""
        if self._store is not None:
            self._store.set(f"left-{self.rank}", b"")
            if self.rank == 0:
                with suppress(RuntimeError):  # one that has died does not keep the others
                    self._store.wait([f"left-{rank}" for rank in range(self.nodes)], LEAVING)


class MetLaunch(NodesLaunch):
    """A launch whose torchrun on this node is the first; processes that wait on the other nodes start theirs."""

    def __init__(self, *arguments: Any, nodes: Nodes) -> None:
        super().__init__(*arguments)
        self._met = nodes

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        agent = self._torchrun(self._met.address, self._met.port + 1)
        said = {"agent": agent, "worker": worker(batch), "variables": {**self._settings(), **self._variables}}
        self._met.say(json.dumps(said).encode())
        yield [sys.executable, *agent, "--node-rank=0", *worker(batch)], self._settings()

    def _nodes(self) -> int:
        return self._met.nodes

    def _where(self) -> dict[str, Any]:
        return {"launched": {"nodes": self._met.nodes}}


class EveryNode(Torchrun):
    """Runs each case like Torchrun, but on all nodes of the job that this process is the first of."""

    name = "every_node"
    summary = "real processes on the nodes of a job that another launcher started"

    def __init__(self, train: str, nodes: Nodes) -> None:
        super().__init__(train)
        self._starts = partial(MetLaunch, nodes=nodes)


def follow(nodes: Nodes) -> None:
    """Start on this node what the first one says, launch after launch, until it says that this was all."""
    while (word := nodes.hear()) != END:
        said: Mapping[str, Any] = json.loads(word)
        command = [sys.executable, *said["agent"], f"--node-rank={nodes.rank}", *said["worker"]]
        # Ranks watch this pipe: it closes when this process dies, and they end.
        with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **said["variables"]}) as process:
            process.wait()


def main(arguments: list[str]) -> int:
    """Run the cases of a sweep, or follow the node that does; return 0, or 1 after saying what went wrong."""
    parser = ArgumentParser(prog="python -m ssfx.lab.engines.every_node")
    parser.add_argument("sweep", type=Path)
    for name, kind in (("nodes", int), ("rank", int), ("address", str), ("port", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args(arguments)
    sweep = read_json(given.sweep)
    nodes = Nodes(given.nodes, given.rank, given.address, given.port, sweep["key"])
    if nodes.rank:
        try:
            follow(nodes)
            nodes.leave()
        except RunError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except RuntimeError:  # of the store
            print(f"error: the first node, at {given.address}, has gone", file=sys.stderr)
            return 1
        return 0
    cases = [Case.of(one) for one in sweep["cases"]]
    engine = EveryNode(sweep["train"], nodes)
    try:
        engine.run(cases, Store(Path(sweep["root"])), stall_timeout_s=sweep["stall_timeout_s"])
    except SsfxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        nodes.say(END)
        nodes.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
