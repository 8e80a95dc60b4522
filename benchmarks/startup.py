"""Print the median wall time of commands that people type often.

    python benchmarks/startup.py [REPEATS]

Run it on an idle machine. Budgets: help and list 0.15 s, plan 0.45 s; the tests assert what is imported, never a time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

COMMANDS = (
    "--help",
    "list",
    "list schemes",
    "plan scheme=ddp model=bert_large cluster=64gpu",
    "plan model=bert_large cluster=64gpu",
    "figures --help",
    "status",
    "run --dry-run",
)


def main() -> None:
    """Print one line per command."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    program = shutil.which("ssfx", path=str(Path(sys.executable).parent)) or "ssfx"
    for command in COMMANDS:
        times = []
        for _ in range(repeats):
            began = perf_counter()
            subprocess.run([program, *command.split()], capture_output=True, check=True)
            times.append(perf_counter() - began)
        print(f"{median(times):6.3f} s  ssfx {command}", flush=True)


if __name__ == "__main__":
    main()
