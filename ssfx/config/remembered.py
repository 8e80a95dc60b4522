"""What Hydra made of the same files before: importing it and asking it takes longer than simulating a step.

An answer is kept under the digest of all that it depends on, so it is never out of date: what files hold, what is
asked, which Hydra answers, and how it is asked. Without a place to keep it, or a damaged one, Hydra is asked again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ssfx.core.errors import RunError
from ssfx.core.files import read_json, write_atomic
from ssfx.core.paths import cache_dir


def remembered(ask: Callable[[], Any], question: Any, files: Iterable[Path]) -> Any:
    """Return what `ask` returns, plain data, or has returned to the same `question` with the same `files`."""
    kept = cache_dir() / "joined" / f"{_digest(question, files)}.json"
    try:
        return read_json(kept)
    except (OSError, RunError):
        answer = ask()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(kept, json.dumps(answer))
    except OSError:
        pass  # a read-only home or a full disk: then it is asked every time
    return answer


def _digest(question: Any, files: Iterable[Path]) -> str:
    """Return 32 hex digits of the question and of every file's name and content, with their lengths."""
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big") + part)

    add(json.dumps(question).encode())
    hydra = find_spec("hydra")
    for path in [*files, *([Path(hydra.origin)] if hydra and hydra.origin else [])]:
        add(str(path).encode())
        add(path.read_bytes())
    return digest.hexdigest()[:32]
