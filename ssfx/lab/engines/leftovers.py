"""What attempts leave that were cut off, for whoever holds the claim on their run: all their processes have ended."""

from __future__ import annotations

import shutil
from pathlib import Path

from ssfx.lab.results.step_logs import seal

TEMPORARY = "torchrun-files"
"""Folder of an attempt, for its user alone: what torchrun and ranks meet in, and files of torchrun."""


def put_in_order(run_dir: Path) -> None:
    """No temporary file is left of the run's attempts, and each has the digests of its step logs."""
    if not run_dir.is_dir():
        return
    attempts = [folder for folder in run_dir.glob("attempt-*") if not folder.is_symlink()]
    for attempt_dir in attempts:
        shutil.rmtree(attempt_dir / TEMPORARY, ignore_errors=True)
    for path in run_dir.rglob("*.tmp"):
        path.unlink(missing_ok=True)
    for attempt_dir in attempts:
        seal(attempt_dir)
