"""How long ssfx itself takes over a sweep of a thousand cases: nothing is trained, and sbatch is a program that says 1.

    python benchmarks/thousand_cases.py [CASES]

Composed, planned, submitted (dry), scanned for the status, collected: each is printed with its seconds, the CPU seconds
in it, and what the process has in memory afterwards beyond what it had before. The aim: at most 5 s each, and memory
that does not grow when the same is done again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import psutil

from experiments.common.claims.evidence import run_counts
from ssfx.config import resolve_job
from ssfx.config.plans import check_plans
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.cli.watch import snapshot
from ssfx.lab.config.cases import Job
from ssfx.lab.engines.slurm import Slurm
from ssfx.lab.results.store import Store

AIM_S = 5.0
WORDS = ["scheme=ddp,ssfusion_oi", "cluster=16gpu", "cluster.nodes=2", "engine=slurm", "workload=digits_resnet"]


def sweep(cases: int) -> Job:
    """Return a job of about so many cases: two schemes, and seeds."""
    return resolve_job([*WORDS, f"seed=range(0,{max(1, cases // 2)})"])


def finish(job: Job, store: Store) -> None:
    """Give every case a row with the samples of 200 steps, as a real one has."""
    samples = {name: [0.1 + step * 1e-5 for step in range(200)] for name in ("iteration_s", "forward_s", "backward_s")}
    for case in job.cases:
        store.run_dir(case).mkdir(parents=True, exist_ok=True)
        (store.run_dir(case) / "case.json").write_text(case.to_json())
        row = Row(case.run_id, case, {"iteration_s": 0.1}, Origin("measured", "a benchmark"), {"notes": []}, samples)
        store.save(row)


def program(folder: Path, name: str, text: str) -> None:
    """Put a shell program of that name into `folder`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def steps(cases: int, root: Path) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name, in the order in which it can be done."""
    store = Store(root, reference=root)
    found: list[Job] = []

    def collected() -> None:
        with redirect_stderr(StringIO()):
            assert len(Slurm().run(found[0].cases, store)) == len(found[0].cases)

    return {
        "composed": lambda: found.append(sweep(cases)),
        "planned": lambda: check_plans(found[0].cases, found[0].cluster),
        "submitted (dry)": lambda: Slurm().submit(found[0].cases, store),
        "(rows written)": lambda: finish(found[0], store),
        "status": lambda: (snapshot(store), run_counts(store)),
        "collected": collected,
    }


def main() -> None:
    """Print a line for every part, twice, so that what grows is seen."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        programs = Path(folder, "bin")
        programs.mkdir()
        program(programs, "sbatch", "echo 1")
        program(programs, "squeue", "")
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        process = psutil.Process()
        before = process.memory_info().rss
        for turn in ("first", "again"):
            for name, part in steps(cases, Path(folder, turn)).items():
                began, began_cpu = time.perf_counter(), time.process_time()
                part()
                seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
                grown = (process.memory_info().rss - before) / 2**20
                late = "" if seconds <= AIM_S or name.startswith("(") else f"  more than {AIM_S:g} s"
                print(
                    f"{turn}  {cases} cases {name:16} {seconds:6.2f} s  {cpu_s:6.2f} s CPU  {grown:+7.1f} MiB{late}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
