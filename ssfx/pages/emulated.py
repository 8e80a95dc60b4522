"""The table of docs/emulation.md: what `benchmarks/emulated.py` found in the run that is committed."""

from __future__ import annotations

from pathlib import Path

from ssfx.pages.markdown import table
from ssfx.paths import reference_dir
from ssfx.results.files import read_json
from ssfx.results.manifest import describe

RECORD = "emulated_benchmark.json"
"""The file in results/reference that the benchmark's --json has written."""


def emulated_block(folder: Path | None = None) -> str:
    """Return the best scheme on each network with its ratios, and what they were obtained on."""
    path = (folder or reference_dir()) / RECORD
    if not path.exists():
        return (
            f"*Nothing is committed yet; `python benchmarks/emulated.py --json results/reference/{RECORD}` makes one.*"
        )
    record = read_json(path)
    busy = max(run["background_cores"] for run in record["runs"])
    about = (
        f"{describe(record['hardware'])}, {record['date'][:10]}, commit {record['code']['commit'][:7]}, "
        f"torch {record['versions']['torch']}, one thread a worker, {record['rounds']} rounds; other work on at most "
        f"{busy:.1f} cores. Loopback is measured, the other networks are emulated. Ratios are medians with their range."
    )
    return f"{table(record['columns'], record['summary'])}\n\n{about}"
