"""Figures: found in experiments/<paper>/figures.py and called by the names of the papers' artifacts. No torch."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.common.figures.figure import Figure
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, unknown


def experiments_dir() -> Path:
    """Directory of the figure and table scripts, one folder a paper."""
    return Path(__file__).parents[2]


def figures_of(cases: Sequence[Case]) -> list[Figure]:
    """Return the figures that show any of the cases."""
    return [figure for figure in discover().values() if any(map(figure.shows, cases))]


def discover() -> dict[str, Figure]:
    """Return all figures by name; two of one name are an error."""
    found: dict[str, Figure] = {}
    files = [path for pattern in ("*/*.py", "*/figures/*.py") for path in sorted(experiments_dir().glob(pattern))]
    for path in files:
        if "common" in path.parts[len(experiments_dir().parts) :]:
            continue
        for figure in load(path):
            if figure.name in found:
                raise ValueError(f"{path}: a figure named {figure.name!r} exists already")
            found[figure.name] = figure
    return found


def load(path: Path) -> list[Figure]:
    """Return the figures of the file at `path`, in its order: those of its names, and those in its lists."""
    spec = importlib.util.spec_from_file_location(f"ssfx_figures.{path.parent.name}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their own module up
    spec.loader.exec_module(module)
    if hasattr(module, "NAME") and hasattr(module, "TITLE"):
        return [_old(module, path)]
    found: list[Figure] = []
    for value in vars(module).values():
        several = value if isinstance(value, list) else [value]
        found += [replace(one, script=path) for one in several if isinstance(one, Figure)]
    return found


def _old(module: Any, path: Path) -> Figure:
    judge = getattr(module, "judge", None)
    about = getattr(module, "CLAIMS", None)
    return Figure(
        module.NAME, module.TITLE, lambda _, rows, out: module.draw(rows, out),
        (lambda _, rows: judge(rows)) if judge else None,
        needs=getattr(module, "NEEDS", {}), command=getattr(module, "COMMAND", ""),
        about=None if about is None else tuple(about), said=getattr(module, "finding", None),
        notes=tuple(getattr(module, "NOTES", ())), script=path,
    )  # fmt: skip


def chosen(names: Sequence[str]) -> list[Figure]:
    """Return the figures of these names, all for none, in the papers' order.

    A name is "ssfusion.fig11"; "fig11" where one paper alone has it; a paper's, for all of its figures; or FILE.py, the
    script of a figure of the user's. Leading zeros and a panel's letter may be there or not. ConfigError for anything
    else, naming the nearest.
    """
    found = sorted(discover().values(), key=lambda figure: place(figure.name))
    scripts = [word for word in names if word.endswith(".py")]
    known = [figure.name for figure in found]
    wanted = {name for word in names if word not in scripts for name in _meant(word, known)}
    return [figure for figure in found if not names or figure.name in wanted] + [_own(word, known) for word in scripts]


def _own(script: str, known: Sequence[str]) -> Figure:
    """Return the figure of a script of the user's; ConfigError where it defines none, or one that is there already."""
    path = Path(script).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    try:
        figure = load(path)
    except AttributeError as error:
        raise ConfigError(f"{path} is no figure: it must define NAME, TITLE and draw(rows, out); {error}") from None
    except Exception as error:
        raise ConfigError(f"{path} fails: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if figure.name in known:
        raise ConfigError(f"{path}: NAME = {figure.name!r} is a figure of ssfx; give yours another")
    return figure


def place(name: str) -> tuple[str, int, int, str]:
    """Return where a figure stands among others: by paper, then as figures, tables and the rest, by number."""
    paper, _, own = name.partition(".")
    match = re.fullmatch(r"([a-z]+)(\d+)(.*)", own)
    if match is None:
        return paper, 9, 0, own
    kinds = ("fig", "table", "alg", "eq")
    return paper, kinds.index(match[1]) if match[1] in kinds else 8, int(match[2]), match[3]


def _meant(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that a word on the command line stands for; ConfigError if there is none, or no single one."""
    if own := [name for name in names if name.startswith(f"{word}.")]:
        return own
    for plain in (word, _plain(word), re.sub(r"(?<=\d)[a-z]$", "", _plain(word))):
        same = [name for name in names if plain in (name, name.partition(".")[2])]
        if len(same) == 1:
            return same
        if same:
            raise ConfigError(f"several papers have a {plain!r}; say which: {', '.join(same)}")
    raise unknown("figure", word, names)


def _plain(word: str) -> str:
    return re.sub(r"(?<=[a-z])0+(?=\d)", "", word)
