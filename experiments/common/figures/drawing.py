"""Drawing figures from rows: only what changed, several at once, and one that fails takes no other along. No torch."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import ssfx
from experiments.common.claims.ledger import ledger_files
from experiments.common.figures.discovery import chosen, load
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, plt, save, style
from ssfx.core.errors import RunError, SsfxError
from ssfx.core.files import DAMAGED, check_writable, loads, write_json
from ssfx.core.paths import conf_dir, data_dir, results_dir
from ssfx.core.rows import Row
from ssfx.lab.results.store import Unreadable

State = Literal["drawn", "unchanged", "committed", "missing", "failed"]
MANIFEST = ".drawn.json"
"""Kept in the folder of the figures: for each the digest of what it was drawn from, and of its files."""
LIBRARY, PAPERS = Path(ssfx.__file__).parent, Path(__file__).parents[1]
STYLE = (LIBRARY / "core", LIBRARY / "lab" / "results", PAPERS / "claims", PAPERS / "figures")
"""Rooms that decide how rows become a figure; computed figures depend on all of them."""
PROCESSES = 2
FEW = 3
"""Figures that are drawn one after the other: a second process takes about a second to start."""


@dataclass(frozen=True)
class Drawn:
    """What became of one figure: its files, and why it has none or a placeholder, or which runs a drawn one lacks."""

    name: str
    state: State
    files: tuple[Path, ...] = ()
    said: str = ""


def draw_all(
    names: Sequence[str],
    rows: Sequence[Row],
    out_dir: Path,
    *,
    unreadable: Sequence[Unreadable] = (),
    processes: int = PROCESSES,
    placeholders: bool = False,
    now: Inputs | None = None,
    committed: Path | None = None,
    own: frozenset[str] = frozenset(),
) -> list[Drawn]:
    """Draw the named figures (all when none is named) into `out_dir`, but for those that are there unchanged.

    A figure without rows is "missing"; with `placeholders` it gets a picture that says so and names the command. One
    whose rows cannot be used, or which may need one of the `unreadable` ones, is "failed"; others are drawn anyway.
    A figure of none of the runs `own` is copied from the folder `committed`, PNG and CSV, where it is: "committed".
    """
    manifest = _manifest(out_dir)
    results: dict[str, Drawn] = {}
    todo: list[tuple[Figure, list[Row], str]] = []
    figures = chosen(names)
    now = now or Inputs(placeholders)
    for figure in figures:
        if spoilt := next((one for one in unreadable if any(map(figure.shows, one.kin))), None):
            results[figure.name] = Drawn(figure.name, "failed", said=spoilt.message)
            continue
        shown = figure.select(rows)
        inputs = now.of(figure, shown)
        if files := _unchanged(manifest.get(figure.name), inputs, out_dir):
            state: State = "missing" if manifest[figure.name]["missing"] else "unchanged"
            results[figure.name] = Drawn(figure.name, state, files, _wants(figure, shown, state))
        elif (
            committed
            and own.isdisjoint(row.run_id for row in shown)
            and (files := _copied(figure.name, committed, out_dir))
        ):
            results[figure.name] = Drawn(figure.name, "committed", files)
        else:
            todo.append((figure, shown, inputs))
    if todo:
        check_writable(out_dir, "name another folder with ssfx figures --out, or set SSFX_RESULTS")
    for (figure, _, inputs), one in zip(todo, _drawn(todo, out_dir, processes, placeholders), strict=True):
        results[figure.name] = one
        manifest.pop(figure.name, None)
        if one.files:
            files_now = {path.name: _digest(path.read_bytes()) for path in one.files}
            manifest[figure.name] = {"inputs": inputs, "missing": one.state == "missing", "files": files_now}
    if todo:
        write_json(out_dir / MANIFEST, json.dumps(manifest, sort_keys=True, indent=1))
    return [results[figure.name] for figure in figures]


def check_all(names: Sequence[str], rows: Sequence[Row], out_dir: Path) -> list[Path]:
    """Return the CSV files in `out_dir` once each was found equal to what `rows` give now; else RunError naming one.

    A picture whose recorded CSV digest is not that of the CSV beside it counts as different too.
    """
    with tempfile.TemporaryDirectory() as scratch:
        drawn = draw_all(names, rows, Path(scratch))
        for one in drawn:
            if one.state == "failed":
                raise RunError(f"{one.name}: {one.said}")
        tables = [path for one in drawn for path in one.files if path.suffix == ".csv"]
        checked = [out_dir / path.name for path in tables]
        for now, kept in zip(tables, checked, strict=True):
            again = f"draw it again: ssfx figures --out {out_dir} {now.stem}"
            if not kept.exists() or kept.read_bytes() != now.read_bytes():
                raise RunError(f"{kept} is not what the rows give now; {again}")
            picture = kept.with_suffix(".png")
            if not picture.exists() or recorded_digest(picture) != _digest(kept.read_bytes()):
                raise RunError(f"{picture} was not drawn from {kept.name}; {again}")
    return checked


def recorded_digest(png: Path) -> str:
    """Return the digest of the CSV that a picture was drawn with, as recorded in the picture."""
    from PIL import Image

    with Image.open(png) as image:
        return str(image.info.get("Csv-Sha256", ""))


def _copied(name: str, committed: Path, out_dir: Path) -> tuple[Path, ...]:
    """Return a figure's picture and table, copied from a folder that has both; else ()."""
    found = [committed / f"{name}.{ending}" for ending in ("png", "csv")]
    if not all(path.exists() for path in found) or recorded_digest(found[0]) != _digest(found[1].read_bytes()):
        return ()
    check_writable(out_dir, "set SSFX_RESULTS to a folder of yours")
    out_dir.mkdir(parents=True, exist_ok=True)
    for ending in ("pdf", "svg"):  # of what was drawn before
        (out_dir / f"{name}.{ending}").unlink(missing_ok=True)
    return tuple(Path(shutil.copy(path, out_dir / path.name)) for path in found)


def _drawn(
    todo: Sequence[tuple[Figure, list[Row], str]], out_dir: Path, processes: int, placeholders: bool
) -> Iterator[Drawn]:
    work = [(figure.script, figure.name, rows, out_dir, placeholders) for figure, rows, _ in todo]
    if processes < 2 or len(work) <= FEW:
        yield from (_draw(*item) for item in work)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_draw, *zip(*work, strict=True))


def _draw(script: Path, name: str, rows: list[Row], out_dir: Path, placeholders: bool) -> Drawn:
    """Draw one figure of a file; its errors are its own."""
    figure = next(one for one in load(script) if one.name == name)
    try:
        files = figure.draw(rows, out_dir) if rows or not figure.needs else []
    except SsfxError as error:
        return Drawn(figure.name, "failed", said=str(error))
    if files:
        return Drawn(figure.name, "drawn", tuple(files), _wants(figure, rows, "drawn"))
    if placeholders:
        files = draw_missing(figure.name, figure.title, figure.command, out_dir)
    return Drawn(figure.name, "missing", tuple(files), _wants(figure, rows, "missing"))


def _wants(figure: Figure, rows: list[Row], state: State) -> str:
    """Return which runs a figure lacks and what makes them, a line each; "" for a whole one."""
    lacks = "\n".join(figure.lacks(rows)) if figure.lacks else ""
    return lacks or (figure.command if state == "missing" else "")


class Inputs:
    """Digests of all that figures depend on; every file and every row is read once."""

    def __init__(self, placeholders: bool) -> None:
        self._placeholders = placeholders
        self._texts: dict[int, str] = {}

    def of(self, figure: Figure, rows: Sequence[Row]) -> str:
        """Return the digest of what one figure depends on, of which `rows` are its own."""
        parts = [self._matplotlib, figure.script.read_text(), str(self._placeholders), figure.command]
        parts += sorted(map(self._text, rows))
        parts += [self._style if figure.needs else self._package]
        return _digest("\0".join(parts).encode())

    def of_all(self, figures: Sequence[Figure], rows: Sequence[Row], out_dir: Path) -> str:
        """Return the digest of what any page of these figures depends on, with the pictures in `out_dir`."""
        drawn = " ".join(f"{path.name} {_digest(path.read_bytes())}" for path in sorted(out_dir.glob("*.png")))
        scripts = (path.read_text() for path in dict.fromkeys(figure.script for figure in figures))
        measured = _of_files(list((results_dir() / "profiles").glob("*.json")))
        parts = [self._matplotlib, self._package, measured, drawn, *scripts, *map(self._text, rows)]
        return _digest("\0".join(parts).encode())

    def _text(self, row: Row) -> str:
        if id(row) not in self._texts:  # hashing a row would take as long as its text
            self._texts[id(row)] = row.to_json()
        return self._texts[id(row)]

    @cached_property
    def _matplotlib(self) -> str:
        return version("matplotlib")

    @cached_property
    def _style(self) -> str:
        return _of_files([path for room in STYLE for path in room.rglob("*.py")] + ledger_files())

    @cached_property
    def _package(self) -> str:
        settings = [*conf_dir().rglob("*.yaml"), *data_dir().rglob("*.json")]
        return _of_files([*LIBRARY.rglob("*.py"), *PAPERS.rglob("*.py"), *settings, *ledger_files()])


def _of_files(paths: Sequence[Path]) -> str:
    return _digest(b"\0".join(path.read_bytes() for path in sorted(paths)))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _manifest(out_dir: Path) -> dict[str, Any]:
    try:
        found = loads((out_dir / MANIFEST).read_text())
        return {name: {**one, "missing": one["missing"], "files": dict(one["files"])} for name, one in found.items()}
    except (OSError, *DAMAGED):
        return {}  # everything is drawn again, which is always right


def _unchanged(entry: Mapping[str, Any] | None, inputs: str, out_dir: Path) -> tuple[Path, ...]:
    """Return the files of a figure that was drawn from the same inputs and whose files are still what they were."""
    if not entry or entry.get("inputs") != inputs:
        return ()
    files: Mapping[str, str] = entry.get("files", {})
    paths = tuple(out_dir / name for name in files)
    same = all(path.exists() and _digest(path.read_bytes()) == files[path.name] for path in paths)
    return paths if same else ()


CHARACTERS = 62
"""Of a line in the picture."""


def draw_missing(name: str, title: str, command: str, out: Path) -> list[Path]:
    """Write a small picture that says that the figure is missing, with the command, as out/name.{png,pdf,svg,csv}."""
    head, said = wrap(f"{title[0].upper()}{title[1:]}", CHARACTERS - 8), wrap(command, CHARACTERS)
    with style():
        figure = plt.figure(figsize=(COLUMN_IN, 0.55 + 0.13 * (len(head) + 1 + len(said))))
        figure.text(
            0.04, 1 - 0.1 / figure.get_figheight(), f"{name}: missing, no rows yet", fontweight="bold", va="top"
        )
        figure.text(0.04, 1 - 0.27 / figure.get_figheight(), "\n".join(head), va="top", linespacing=1.35)
        figure.text(
            0.04,
            1 - (0.4 + 0.13 * len(head)) / figure.get_figheight(),
            "\n".join(said),
            va="top",
            family="monospace",
            fontsize=6,
            linespacing=1.35,
        )
        figure.text(0.04, 0.06, "Nothing was run for it, so nothing is shown.", **ORIGIN_LINE)
        return save(figure, name, [{"figure": name, "state": "missing", "command": command}], [], out)
