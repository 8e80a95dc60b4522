"""The SHA-256 of an attempt's step logs, in `step_logs.json`: written when no rank writes them any more.

A log of lines that is cut between two of them looks whole; this shows that it is not.
"""

import hashlib
import json
from pathlib import Path

from ssfx.core.errors import RunError
from ssfx.core.files import loads, read, write_json

NAME = "step_logs.json"


def seal(attempt_dir: Path) -> None:
    """`step_logs.json` has the SHA-256 of every step log of the attempt as it was when this was first called."""
    logs = sorted(attempt_dir.glob("rank*.jsonl"))
    if logs and not (attempt_dir / NAME).exists():
        write_json(attempt_dir / NAME, json.dumps({log.name: _sha256(log) for log in logs}))


def check(log: Path) -> None:
    """Raise RunError where `log` is not what it was when its attempt ended; of one under way that is not known."""
    path = log.with_name(NAME)
    sealed = read(path, _digests) if path.exists() else {}
    if log.name in sealed and _sha256(log) != sealed[log.name]:
        raise RunError(f"{log} is not what its run wrote, by {NAME} beside it; put it back, or remove the run")


def _digests(text: str) -> dict[str, str]:
    found = {Path(str(name)).name: str(digest) for name, digest in loads(text).items()}
    if not found:
        raise ValueError("it has no digests")
    return found


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
