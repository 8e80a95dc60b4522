"""Print the median wall and processor time (user and system) of commands that people type often.

    python benchmarks/startup.py [REPEATS]

Processor time says more on a busy machine. Budgets: help and list 0.15 s, plan 1.0 s, a grid of a thousand cases 2 s;
the tests assert what is imported and how often files are joined, never a time.
"""

from __future__ import annotations

import resource
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
    "run --dry-run scheme=ddp,per_tensor,fused_all,ssfusion_oi workload=digits_resnet,text_gpt2 density=0.1,0.01,0.001 "
    "seed=" + ",".join(map(str, range(50))),  # 1,000 cases
)


def main() -> None:
    """Print one line per command."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    program = shutil.which("ssfx", path=str(Path(sys.executable).parent)) or "ssfx"
    for command in COMMANDS:
        walls, processors = [], []
        for _ in range(repeats):
            began, before_s = perf_counter(), processor_s()
            subprocess.run([program, *command.split()], capture_output=True, check=True)
            walls.append(perf_counter() - began)
            processors.append(processor_s() - before_s)
        shown = command if len(command) < 80 else f"{command[:76]} ..."
        print(f"{median(walls):6.3f} s wall  {median(processors):6.3f} s processor  ssfx {shown}", flush=True)


def processor_s() -> float:
    """Return the user and system seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
