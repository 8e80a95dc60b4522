"""CPU time of whole exchanges in few bits, beside those of another checkout, in turns in one run; ratios count.

    git worktree add ../before COMMIT
    python benchmarks/quantized_exchange.py [--before ../before] [--numel 16777216] [--rounds 5] [SPEC ...]

Two virtual ranks quantise, sum and quantise again (quantized_all_reduce) what a memory keeps the rest of; the CPU time
of their threads counts, without what a network would take. A copy of the vector gives the unit.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

SPECS = (
    "qsgd(bits=4,bucket=512,norm=max)",
    "qsgd(bits=4,bucket=48,norm=max)",
    "qsgd(bits=4,bucket=32,norm=max,rotate=32)",
    "qsgd(norm=max)",
    "fp8",
    "onebit(bucket=1024)",
)
RANKS = 2


def work(specs: list[str], numel: int) -> None:
    """Answer every line of stdin, the number of a spec, with the CPU seconds of one exchange by each of two ranks."""
    import torch

    import ssfx
    from ssfx.collectives import Reducer, Reduction, collectives
    from ssfx.collectives.comm import Comm
    from ssfx.compressors import build
    from ssfx.core.errors import ConfigError

    reducer = collectives.build("quantized_all_reduce")
    assert isinstance(reducer, Reducer)
    vectors = [torch.randn(numel, generator=torch.Generator().manual_seed(rank)) * 1e-3 for rank in range(RANKS)]

    copy = torch.empty(numel)

    def exchange(comm: Comm, spec: str) -> float:
        vector = vectors[comm.rank].clone()
        started = time.thread_time()
        reducer.reduce(Reduction(vector, numel, compressor=build(spec)), comm)
        return time.thread_time() - started

    def seconds(spec: str) -> float | None:
        try:
            return sum(ssfx.virtual_ranks(lambda _, comm: exchange(comm, spec), RANKS)) / RANKS
        except (ConfigError, ValueError):  # the other checkout may not know it
            return None

    for line in sys.stdin:
        if int(line) < 0:
            started = time.thread_time()
            copy.copy_(vectors[0])
            print(json.dumps(time.thread_time() - started), flush=True)
        else:
            print(json.dumps(seconds(specs[int(line)])), flush=True)


def main() -> None:
    """Print a line for each spec: CPU seconds here, in copies of the vector, and over those of the other checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--numel", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        return work(list(asked.specs), asked.numel)
    trees = [Path(__file__).parents[1], *([asked.before] if asked.before else [])]
    command = [sys.executable, str(Path(__file__).resolve()), "--work", f"--numel={asked.numel}", *asked.specs]
    workers = [
        subprocess.Popen(
            command,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tree in trees
    ]

    def ask(worker: "subprocess.Popen[str]", number: int) -> float | None:
        assert worker.stdin
        assert worker.stdout
        print(number, file=worker.stdin, flush=True)
        answer: float | None = json.loads(worker.stdout.readline())
        return answer

    for number in (-1, *range(len(asked.specs))):  # compiles, and fills caches
        for worker in workers:
            ask(worker, number)
    print(f"{asked.numel:,} elements, {RANKS} ranks, CPU time of a rank, median of {asked.rounds}")
    for number, spec in enumerate(asked.specs):
        found: list[list[float]] = [[] for _ in workers]
        copies = []
        for _ in range(asked.rounds):
            copies.append(ask(workers[0], -1) or 0.0)
            for mine, worker in zip(found, workers, strict=True):
                if (seconds := ask(worker, number)) is not None:
                    mine.append(seconds)
        here, *before = (median(one) if one else None for one in found)
        assert here is not None
        text = f"{spec}: {1e3 * here:.0f} ms, {here / median(copies):.1f} copies"
        print(text + "".join(f"; {here / one:.2f} of before ({1e3 * one:.0f} ms)" for one in before if one))
    for worker in workers:
        assert worker.stdin
        worker.stdin.close()
        worker.wait()
    return None


if __name__ == "__main__":
    main()
