"""A page to play with: tables of steps, sliders and pictures in one HTML file that needs no network."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ssfx.advice.play import table_of
from ssfx.advice.ranking import advise
from ssfx.config.advice_question import resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.core.files import check_writable, write_atomic
from ssfx.core.progress import doing

MOST = 32
"""Settings that a page may have; each takes several seconds."""


def tables_of(words: Iterable[str]) -> list[dict[str, Any]]:
    """Return the table of each combination of the comma lists in `words`, with what was chosen of the lists."""
    found, points = [], combinations(words)
    for number, point in enumerate(points, 1):
        with doing(f"simulating setting {number} of {len(points)}"):
            table = table_of(advise(resolve_setting(point)))
        chosen = [word.partition("=") for word in point if any(word not in other for other in points)]
        found.append({**table, "choice": {key: value for key, _, value in chosen}})
    return found


def combinations(words: Iterable[str]) -> list[list[str]]:
    """Return the words of every combination of comma lists; ConfigError for more than MOST."""
    found: list[list[str]] = [[]]
    for word in words:
        key, _, text = word.partition("=")
        several = "," in text and not any(mark in text for mark in "([{'\"")
        each = [f"{key}={value}" for value in text.split(",")] if several else [word]
        found = [[*one, value] for one in found for value in each]
    if len(found) > MOST:
        raise ConfigError(f"a page takes at most {MOST} settings, these are {len(found)}; name fewer values")
    return found


def plotly_js() -> str:
    """Return plotly's library for browsers, packed."""
    from plotly.offline import get_plotlyjs

    return b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def section(tables: Sequence[dict[str, Any]], library: str) -> str:
    """Return the HTML of sliders, pictures and what they need, with plotly_js; its ids begin with play."""
    look, work = (files("ssfx.cli").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    data = json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c")
    body = files("ssfx.cli").joinpath("page.html").read_text("utf-8")
    parts = {"look": look, "title": escape(tables[0]["title"]), "data": data, "library": library, "work": work}
    for name, text in parts.items():
        body = body.replace(f"<!-- {name} -->", text)
    return body


def write_page(path: Path, words: Iterable[str]) -> int:
    """The page at `path` has every combination of the comma lists in `words`; return their number.

    ConfigError where the page cannot be written, and for a combination that has no answer.
    """
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"--page writes HTML, {path} has another ending; write --page {path.with_suffix('.html')}")
    check_writable(path.parent, "name another file")
    library = plotly_js()
    tables = tables_of(words)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    page = (
        f'<!doctype html><html lang="en"><head>{head}<title>{escape(tables[0]["title"])}</title>'
        f"<style>body {{ margin: 0; }}</style></head><body>{section(tables, library)}</body></html>\n"
    )
    try:
        write_atomic(path, page)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return len(tables)
