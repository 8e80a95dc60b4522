"""Figures: found as experiments/<paper>/<figure>.py, drawn from rows, checked against earlier drawings. No torch."""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssfx.claims.verdicts import Verdict
from ssfx.core.case import Case
from ssfx.core.errors import RunError, unknown
from ssfx.core.paths import experiments_dir
from ssfx.results.rows import Row


@dataclass(frozen=True)
class Figure:
    """One figure script: what it is called, which rows it needs and how they become pictures.

    `needs` maps fields of a Case to the value they must have, or to a test of it; `command` makes such rows.
    `draw(rows, out)` writes <name>.png, .pdf and .csv into `out` and returns their paths, none when the rows do not
    suffice yet. `finding(rows)` is one line of plain text that says what the rows show. `judge(rows)` gives verdicts
    on claims that the script computes itself; a figure whose `needs` are empty is computed and takes no rows.
    """

    name: str
    title: str
    claims: tuple[str, ...]
    needs: Mapping[str, Any]
    draw: Callable[[list[Row], Path], list[Path]]
    finding: Callable[[list[Row]], str]
    command: str
    judge: Callable[[list[Row]], Sequence[Verdict]] | None = None

    def shows(self, case: Case) -> bool:
        """True when the figure needs runs like that of `case`."""
        return bool(self.needs) and all(_fits(getattr(case, field), value) for field, value in self.needs.items())

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows this figure needs; of one case measured twice on one machine, the newest."""
        newest: dict[tuple[str, str, str], Row] = {}
        for row in sorted(rows, key=lambda row: row.origin.date):
            if self.shows(row.case):
                newest[row.run_id, row.origin.kind, row.origin.hardware] = row
        return [newest[key] for key in sorted(newest)]


def discover() -> dict[str, Figure]:
    """Return all figures by name; two of one name, or a script without one of the required names, is an error."""
    found: dict[str, Figure] = {}
    for path in sorted(experiments_dir().glob("*/*.py")):
        figure = load(path)
        if figure.name in found:
            raise ValueError(f"{path}: a figure named {figure.name!r} exists already")
        found[figure.name] = figure
    return found


def load(path: Path) -> Figure:
    """Return the figure that the script at `path` defines; COMMAND says what makes its rows where NEEDS does not."""
    spec = importlib.util.spec_from_file_location(f"ssfx_experiments.{path.parent.name}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    words = (f"{field}={value}" for field, value in module.NEEDS.items() if isinstance(value, str) and value)
    command = getattr(module, "COMMAND", None) or f"ssfx run {' '.join(words)}"
    return Figure(
        module.NAME, module.TITLE, tuple(module.CLAIMS), module.NEEDS, module.draw, module.finding, command,
        getattr(module, "judge", None),
    )  # fmt: skip


def _fits(found: object, wanted: Any) -> bool:
    return bool(wanted(found)) if callable(wanted) else found == wanted


def draw_all(names: Sequence[str], rows: Sequence[Row], out_dir: Path) -> list[Path]:
    """Draw the named figures (all when none is named) into `out_dir` and return the files written.

    A figure whose rows do not suffice is left out, with a line on standard output. RunError if it
    was asked for by name.
    """
    written: list[Path] = []
    for figure in _chosen(names):
        chosen = figure.select(rows)
        files = figure.draw(chosen, out_dir) if chosen or not figure.needs else []
        missing = f"{figure.name}: no rows yet: {figure.command}"
        if names and not files:
            raise RunError(missing)
        if not files:
            print(missing)
        written += files
    return written


def check_all(names: Sequence[str], rows: Sequence[Row], out_dir: Path) -> list[Path]:
    """Return the CSV files in `out_dir` once each was found equal to what `rows` give now; else RunError naming one.

    A picture whose recorded CSV digest is not that of the CSV beside it counts as different too.
    """
    with tempfile.TemporaryDirectory() as scratch:
        drawn = [path for path in draw_all(names, rows, Path(scratch)) if path.suffix == ".csv"]
        checked = [out_dir / path.name for path in drawn]
        for now, kept in zip(drawn, checked, strict=True):
            again = f"draw it again: ssfx figures --out {out_dir} {now.stem}"
            if not kept.exists() or kept.read_bytes() != now.read_bytes():
                raise RunError(f"{kept} is not what the rows give now; {again}")
            picture = kept.with_suffix(".png")
            if not picture.exists() or recorded_digest(picture) != hashlib.sha256(kept.read_bytes()).hexdigest():
                raise RunError(f"{picture} was not drawn from {kept.name}; {again}")
    return checked


def recorded_digest(png: Path) -> str:
    """Return the digest of the CSV that a picture was drawn with, as recorded in the picture."""
    from PIL import Image

    with Image.open(png) as image:
        return str(image.info.get("Csv-Sha256", ""))


def _chosen(names: Sequence[str]) -> list[Figure]:
    found = discover()
    for name in names:
        if name not in found:
            raise unknown("figure", name, found)
    return [found[name] for name in names or sorted(found)]
