"""Tokens a second of ranks that exchange weights every 32 steps, over those of DDP, on emulated hosts with slow lines.

    sudo python benchmarks/local_updates.py [--network 100mbit] [--steps 96]

Two real torchrun ranks train the byte GPT by each scheme, one after the other, on the same emulated hosts. Throughput
is that of whole rounds: all steps, exchanges with them, over their time. A rank takes one sample a step: two cores
compute as slowly for one as a GPU does for hundreds.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines import engines
from ssfx.lab.results.store import Store

SCHEMES = ("ddp", "ddp_fp16", "local_sgd(every=32)", "diloco(every=32)", "streaming_diloco(every=32)")


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="100mbit", choices=("100mbit", "1gbit", "10gbit"))
    parser.add_argument("--steps", type=int, default=96)
    asked = parser.parse_args(arguments)
    words = ["workload=text_gpt2", "batch_size=1", f"cluster=emulated_2x{asked.network}"]
    job = resolve_job([*words, f"scheme={','.join(SCHEMES)}", f"steps={asked.steps}", "warmup_steps=0"])
    with tempfile.TemporaryDirectory() as folder:
        rows = engines[job.engine].run(job.cases, Store(Path(folder)), progress=False)
    table = Table("scheme", "samples/s", "over DDP")
    rates = [row.metrics["throughput_samples_per_s"] or 0.0 for row in rows]
    for scheme, rate in zip(SCHEMES, rates, strict=True):
        table.add_row(scheme, f"{rate:.1f}", f"{rate / rates[0]:.1f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
