"""The file of the report, written again only when something that it shows has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from experiments.common.figures.discovery import discover
from experiments.common.figures.drawing import Inputs
from experiments.common.pages.report import report_page
from ssfx.core.files import write_atomic
from ssfx.core.rows import Row

MARK = "<!-- made from "
"""Begins the last line of the page, which has the digests of what the page was made from and of the page."""


def write_report(rows: Sequence[Row], pictures: Path, path: Path) -> bool:
    """The page at `path` is what rows and pictures give; return whether it had to be made again.

    A page that was edited, or cut, is made again too.
    """
    look = "".join(
        files("experiments.common.pages").joinpath(name).read_text("utf-8") for name in ("report.css", "report.js")
    )
    figures = sorted(discover().values(), key=lambda figure: figure.name)
    inputs = _digest(look + Inputs(placeholders=True).of_all(figures, rows, pictures))
    if _is_of(path, inputs):
        return False
    page = report_page(rows, pictures)
    write_atomic(path, f"{page}{MARK}{inputs} {_digest(page)} -->\n")
    return True


def _is_of(path: Path, inputs: str) -> bool:
    try:
        page, mark, digests = path.read_text("utf-8").rpartition(MARK)
    except (OSError, UnicodeDecodeError):
        return False  # it is made again, which is always right
    return bool(mark) and digests == f"{inputs} {_digest(page)} -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
