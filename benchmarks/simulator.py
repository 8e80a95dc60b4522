"""Print how long simulations take: one command, the grid of experiment=throughput, points per hour, 4096 ranks.

    python benchmarks/simulator.py [REPEATS]

Goals: one point 0.5 s with start-up (the first time on a machine, when Hydra joins the files, is longer); the grid (4
workloads, 16, 32 and 64 GPUs, 12 schemes and the ideal) 5 s on two cores; 4096 GPUs as long as 64; 100,000 points an
hour. Wall times are of a machine that does nothing else; processor time says more on a busy one. Nothing is asserted.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from ssfx.config.cases import resolve_job
from ssfx.core.case import Case
from ssfx.engines import engines
from ssfx.results.store import Store
from ssfx.simulator.cases import simulate_case

ONE = "simulate model=bert_large cluster=64gpu scheme=ssfusion_oi density=0.01"
GRID = "experiment=throughput cluster=16gpu,32gpu,64gpu"


def main() -> None:
    """Print one line per goal."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    program = shutil.which("ssfx", path=str(Path(sys.executable).parent)) or "ssfx"
    show(
        "one point, start-up included, the first time on a machine",
        *timed(lambda: for_the_first_time(program), repeats),
    )
    show("one point, start-up included", *timed(lambda: started(program, ONE), repeats))
    show("experiment=throughput cluster=64gpu, figures included", *timed(lambda: whole_command(program), 1))
    resolving = timed(lambda: resolve_job(GRID.split()), 1)  # what it reads is kept, so the first time counts
    cases = resolve_job(GRID.split()).cases
    show(f"the grid, {len(cases)} cases: resolving", *resolving)
    took = timed(lambda: grid(cases), 1)
    show(f"the grid, {len(cases)} cases: planning, simulating, saving", *took)
    print(f"{3600 * len(cases) / took[0]:10,.0f} points an hour; {3600 * len(cases) / took[1]:,.0f} of one core's time")
    for nodes in (16, 1024):
        words = f"cluster=64gpu cluster.nodes={nodes} workload=bert_large_squad scheme=ddp,oktopk,ssfusion_oi"
        large = resolve_job(words.split()).cases
        took = timed(lambda: [simulate_case(case) for case in large], repeats)  # noqa: B023
        show(f"three schemes of BERT-large on {4 * nodes} GPUs", *took)


def grid(cases: Sequence[Case]) -> None:
    """Simulate and save the cases in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        engines["simulate"].run(cases, Store(Path(folder)), progress=False)


def started(program: str, words: str, **environment: str) -> None:
    """Run one command to its end."""
    subprocess.run([program, *words.split()], capture_output=True, check=True, env={**os.environ, **environment})


def for_the_first_time(program: str) -> None:
    """Simulate one point without anything cached."""
    with tempfile.TemporaryDirectory() as folder:
        started(program, ONE, XDG_CACHE_HOME=folder)


def whole_command(program: str) -> None:
    """Run the experiment in a fresh folder, as on a fresh laptop."""
    with tempfile.TemporaryDirectory() as folder:
        started(program, "run experiment=throughput cluster=64gpu", SSFX_RESULTS=folder)


def timed(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median wall and processor seconds, of this process and of what it started."""
    walls, processors = [], []
    for _ in range(repeats):
        began, before_s = perf_counter(), processor_s()
        work()
        walls.append(perf_counter() - began)
        processors.append(processor_s() - before_s)
    return median(walls), median(processors)


def processor_s() -> float:
    """Return the user and system seconds so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def show(what: str, wall_s: float, processor_s: float) -> None:
    """Print one line."""
    print(f"{wall_s:8.3f} s wall  {processor_s:8.3f} s processor  {what}", flush=True)


if __name__ == "__main__":
    main()
