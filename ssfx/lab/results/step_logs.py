"""The digests of an attempt's step logs, one a file, in `step_logs.json`: written when no rank writes them any more."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from ssfx.core.digests import Changed, loads, with_digest
from ssfx.core.errors import RunError
from ssfx.core.files import note_digest, read, refusal, write_atomic, write_json

NAME = "step_logs.json"


def seal(attempt_dir: Path) -> None:
    """`step_logs.json` has the SHA-256 of every step log of the attempt as it was when this was first called."""
    logs = sorted(attempt_dir.glob("rank*.jsonl"))
    if logs and not (attempt_dir / NAME).exists():
        write_json(attempt_dir / NAME, json.dumps({log.name: _sha256(log) for log in logs}))


def check(log: Path) -> None:
    """Raise RunError where `log` is not what it was when its attempt ended; note one of which that is not known."""
    sealed = _sealed(log.parent)
    if log.name in sealed and _sha256(log) != sealed[log.name]:
        raise RunError(refusal(log, Changed()))
    note_digest(log, log.name in sealed)


def check_all(attempt_dir: Path) -> None:
    """Raise RunError where a step log that the attempt left is gone, or another one."""
    for name in _sealed(attempt_dir):
        if not (attempt_dir / name).is_file():
            raise RunError(f"{attempt_dir / name} is not there, and {attempt_dir / NAME} has its digest")
        check(attempt_dir / name)


def accept(log: Path) -> bool:
    """`log` is from now on what was written, and its attempt's digests say on which day; return whether it was not."""
    sealed, own = _sealed(log.parent), _sha256(log)
    if sealed.get(log.name) == own:
        return False
    today = datetime.now(UTC).date().isoformat() if log.name in sealed else ""
    text = json.dumps({**sealed, log.name: own})
    write_atomic(log.parent / NAME, with_digest(text, today) + "\n")
    return True


def _sealed(attempt_dir: Path) -> dict[str, str]:
    path = attempt_dir / NAME
    return read(path, _digests) if path.exists() else {}


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
