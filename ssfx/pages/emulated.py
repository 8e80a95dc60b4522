"""The tables of docs/emulation.md: what two benchmarks found in the runs of them that are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssfx.core.files import read_json
from ssfx.core.paths import reference_dir
from ssfx.pages.markdown import table
from ssfx.results.manifest import describe

RECORD = "emulated_benchmark.json"
"""The file in results/reference that --json of benchmarks/emulated.py has written."""
PATIENCE = "patience.json"
"""The same of benchmarks/patience.py."""


def emulated_block(folder: Path | None = None) -> str:
    """Return the best scheme on each network with its ratios, and what they were obtained on."""
    record = _record("emulated", RECORD, folder)
    if isinstance(record, str):
        return record
    groups: dict[str, dict[str, None]] = {}
    for run in record["runs"]:
        groups.setdefault(f"{_about(run)}, {run['rounds']} rounds", {})[run["network"]] = None
    obtained = "; ".join(f"{', '.join(networks)}: {about}" for about, networks in groups.items())
    lines = [run["summary"] for run in record["runs"]]
    return (
        f"{table(record['columns'], lines)}\n\n{obtained}. One thread a worker; {_busy(record['runs'])}. Loopback is "
        "measured, the other networks are emulated. Ratios are medians with their range."
    )


def patience_block(folder: Path | None = None) -> str:
    """Return what small exchanges take with gloo's listener as torch leaves it, and as ssfx does, in ms."""
    record = _record("patience", PATIENCE, folder)
    if isinstance(record, str):
        return record
    worlds = sorted({line["ranks"] for line in record["found"]})
    kinds = ("torch", "ssfx")
    times: dict[str, dict[tuple[int, str], str]] = {}
    for line in record["found"]:
        for kind in kinds:
            median, late = line[f"{kind}_ms"]
            times.setdefault(line["what"], {})[line["ranks"], kind] = f"{median:.2f} ({late:.2f})"
    cells = [(ranks, kind) for ranks in worlds for kind in kinds]
    header = ["all-reduce", *(f"{ranks} ranks, {kind}" for ranks, kind in cells)]
    lines = [[what, *(found.get(cell, "") for cell in cells)] for what, found in times.items()]
    about = f"{_about(record)}, loopback, {record['rounds']} rounds; measured; {_busy(record['found'])}."
    return f"{table(header, lines)}\n\n{about} Medians in ms, with 90th percentiles."


def _record(benchmark: str, name: str, folder: Path | None) -> Any:
    """Return the content of the file, else the sentence that says how it is made."""
    path = (folder or reference_dir()) / name
    if not path.exists():
        command = f"python benchmarks/{benchmark}.py --json results/reference/{name}"
        return f"*Nothing is committed yet; `{command}` makes one.*"
    return read_json(path)


def _about(record: Any) -> str:
    return (
        f"{describe(record['hardware'])}, {record['date'][:10]}, commit {record['code']['commit'][:7]}, "
        f"torch {record['versions']['torch']}"
    )


def _busy(parts: Any) -> str:
    return f"other work on at most {max(part['background_cores'] for part in parts):.1f} cores"
