"""Figures: found as experiments/<paper>/<figure>.py and called by the names of the papers' artifacts. No torch."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.claims.verdicts import Verdict, counted
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.rows import Row


@dataclass(frozen=True)
class Figure:
    """One figure script: what it is called, which rows it needs and how they become pictures.

    `needs` maps fields of a Case to the value they must have, or to a test of it; `command` makes such rows.
    `draw(rows, out)` writes <name>.png, .pdf, .svg and .csv into `out` and returns their paths, none when the rows do
    not suffice yet. `finding(rows)` is one line of plain text that says what the rows show, by default how many
    verdicts came out how. `judge(rows)` gives verdicts on claims that the script computes itself; a figure whose
    `needs` are empty is computed and takes no rows.
    `notes` are sentences for pages that show the figure: what its marks mean, what the paper leaves open.
    """

    name: str
    title: str
    claims: tuple[str, ...]
    needs: Mapping[str, Any]
    draw: Callable[[list[Row], Path], list[Path]]
    finding: Callable[[list[Row]], str]
    command: str
    judge: Callable[[list[Row]], Sequence[Verdict]] | None = None
    notes: tuple[str, ...] = ()
    script: Path = Path()

    def shows(self, case: Case) -> bool:
        """True when the figure needs runs like that of `case`; of shared models only one that says so."""
        if case.sharding != "none" and "sharding" not in self.needs:
            return False
        return bool(self.needs) and all(_fits(getattr(case, field), value) for field, value in self.needs.items())

    def reads(self, experiment: str) -> bool:
        """True when the figure needs rows of that experiment."""
        return bool(self.needs) and ("experiment" not in self.needs or _fits(experiment, self.needs["experiment"]))

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows this figure needs; of one case measured twice on one machine, the newest."""
        newest: dict[tuple[str, str, str], Row] = {}
        for row in sorted(rows, key=lambda row: row.origin.date):
            if self.shows(row.case):
                newest[row.run_id, row.origin.kind, row.origin.hardware] = row
        return [newest[key] for key in sorted(newest)]


def experiments_dir() -> Path:
    """Directory of the figure and table scripts, one folder a paper."""
    return Path(__file__).parents[2]


def figures_of(cases: Sequence[Case]) -> list[Figure]:
    """Return the figures that show any of the cases."""
    return [figure for figure in discover().values() if any(map(figure.shows, cases))]


def discover() -> dict[str, Figure]:
    """Return all figures by name; two of one name, or a script without one of the required names, is an error."""
    found: dict[str, Figure] = {}
    for path in sorted(experiments_dir().glob("*/*.py")):
        if path.parent.name == "common":
            continue
        figure = load(path)
        if figure.name in found:
            raise ValueError(f"{path}: a figure named {figure.name!r} exists already")
        found[figure.name] = figure
    return found


def load(path: Path) -> Figure:
    """Return the figure that the script at `path` defines.

    It is about the artifact of its own name unless CLAIMS names others, and is computed unless NEEDS names rows.
    COMMAND says what makes its rows where NEEDS does not.
    """
    spec = importlib.util.spec_from_file_location(f"ssfx_figures.{path.parent.name}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their own module up
    spec.loader.exec_module(module)
    needs = getattr(module, "NEEDS", {})
    words = [f"{field}={value}" for field, value in needs.items() if isinstance(value, str) and value]
    command = " ".join(("ssfx", "run", *words) if needs else ("ssfx", "figures", module.NAME))
    return Figure(
        module.NAME, module.TITLE, tuple(getattr(module, "CLAIMS", (module.NAME,))), needs, module.draw,
        _finding(module), getattr(module, "COMMAND", command), getattr(module, "judge", None),
        tuple(getattr(module, "NOTES", ())), path,
    )  # fmt: skip


def _finding(module: Any) -> Callable[[list[Row]], str]:
    return getattr(module, "finding", None) or (lambda rows: counted(module.judge(rows)))


def _fits(found: object, wanted: Any) -> bool:
    return bool(wanted(found)) if callable(wanted) else found == wanted


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
