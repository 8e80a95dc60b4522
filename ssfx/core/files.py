"""Files that are either whole or absent, and JSON that is either right or reported with file and line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ssfx.core.errors import RunError


def write_atomic(path: Path, text: str) -> None:
    """Make `path` hold exactly `text`; a crash at any moment leaves the old file or the new one, never a part.

    The directory is synced too, so that the file is still there after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(path: Path) -> Any:
    """Return what the JSON file `path` holds; RunError with file and line when it is corrupt."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunError(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{path}:1: not text ({error.reason})") from None
