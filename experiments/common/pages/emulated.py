"""The table of docs/emulation.md: what benchmarks/emulated.py found in the runs of it that are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.common.pages.markdown import table
from ssfx.core.files import loads, read
from ssfx.core.paths import reference_dir
from ssfx.lab.results.manifest import describe

RECORD = "emulated_benchmark.json"
"""The file in results/reference that --json of benchmarks/emulated.py has written."""


def emulated_block(folder: Path | None = None) -> str:
    """Return the best scheme on each network and auto with their ratios, and what they were obtained on."""
    record = _record("emulated", RECORD, folder)
    if isinstance(record, str):
        return record
    groups: dict[str, dict[str, None]] = {}
    for run in record["runs"]:
        groups.setdefault(f"{_about(run)}, {run['rounds']} rounds", {})[run["network"]] = None
    obtained = "; ".join(f"{', '.join(networks)}: {about}" for about, networks in groups.items())
    lines = [line for run in record["runs"] for line in run["summary"]]
    return (
        f"{table(record['columns'], lines)}\n\n{obtained}. One thread a worker; {_busy(record['runs'])}. Loopback is "
        "measured, the other networks are emulated. Ratios are medians with their range."
    )


def _record(benchmark: str, name: str, folder: Path | None) -> Any:
    """Return the content of the file, else the sentence that says how it is made."""
    path = (folder or reference_dir()) / name
    if not path.exists():
        command = f"python benchmarks/{benchmark}.py --json results/reference/{name}"
        return f"*Nothing is committed yet; `{command}` makes one.*"
    return read(path, loads)


def _about(record: Any) -> str:
    return (
        f"{describe(record['hardware'])}, {record['date'][:10]}, commit {record['code']['commit'][:7]}, "
        f"torch {record['versions']['torch']}"
    )


def _busy(parts: Any) -> str:
    return f"other work on at most {max(part['background_cores'] for part in parts):.1f} cores"
