"""Figures: found in experiments/<paper>/figures.py, or figures/*.py, and called by the papers' names. No torch."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from runpy import run_path

from experiments.common.figures.figure import Figure
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError, nearest, unknown


def experiments_dir() -> Path:
    """Directory of figures and claims, one folder a paper."""
    return Path(__file__).parents[2]


def figures_of(cases: Sequence[Case]) -> list[Figure]:
    """Return the figures that show any of the cases."""
    return [figure for figure in discover().values() if any(map(figure.shows, cases))]


def discover() -> dict[str, Figure]:
    """Return all figures by name; two of one name are an error."""
    found: dict[str, Figure] = {}
    files = [*experiments_dir().glob("*/figures.py"), *experiments_dir().glob("*/figures/*.py")]
    for path in sorted(files):
        if path.is_relative_to(experiments_dir() / "common"):
            continue
        for figure in load(path):
            if figure.name in found:
                raise ValueError(f"{path}: a figure named {figure.name!r} exists already")
            found[figure.name] = figure
    return found


def load(path: Path) -> list[Figure]:
    """Return the figures that the file at `path` has at its top, in its order."""
    return [replace(one, script=path) for one in run_path(str(path)).values() if isinstance(one, Figure)]


def chosen(names: Sequence[str]) -> list[Figure]:
    """Return the figures of these names, all for none, in the papers' order.

    A name is "ssfusion.fig11"; "fig11" where one paper alone has it; a paper's, for all of its figures; or FILE.py,
    with figures of the user's. Leading zeros and a panel's letter may be there or not. ConfigError for anything
    else, naming the nearest.
    """
    found = sorted(discover().values(), key=lambda figure: place(figure.name))
    files = [word for word in names if word.endswith(".py")]
    known = [figure.name for figure in found]
    # What a paper prints twice is one figure with two names; a name with two dots is a claim of one.
    also = {name: one.name for one in found for name in one.claims if name not in known and name.count(".") == 1}
    wanted = {also.get(name, name) for word in names if word not in files for name in _meant(word, [*known, *also])}
    own = [figure for word in files for figure in _own(word, known)]
    return [figure for figure in found if not names or figure.name in wanted] + own


def _own(file: str, known: Sequence[str]) -> list[Figure]:
    """Return the figures of a file of the user's; ConfigError where it has none, or one that is there already."""
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    try:
        figures = load(path)
    except Exception as error:
        raise ConfigError(f"{path} fails: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not figures:
        raise ConfigError(f"{path} has no figure: it must define a Figure of experiments.common.figures.figure")
    for figure in figures:
        if figure.name in known:
            raise ConfigError(f"{path}: {figure.name!r} is a figure of ssfx; give yours another name")
    return figures


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
    if own := [name for name in names if f"{name}.".startswith(f"{word}.")]:
        return own
    for plain in (word, _plain(word), re.sub(r"(?<=\d)[a-z]$", "", _plain(word))):
        same = [name for name in names if plain in (name, name.partition(".")[2])]
        if len(same) == 1:
            return same
        if same:
            raise ConfigError(f"several papers have a {plain!r}; say which: {', '.join(same)}")
    if of_number := [name for name in names if f"fig{word}" == name.partition(".")[2]]:
        raise unknown("figure", word, of_number)
    paper, split = word.partition(".")[0], [name.partition(".") for name in names]
    papers, numbers = list(dict.fromkeys(of for of, _, _ in split)), re.findall(r"\d+", word)
    like = nearest(word, [name for name in (*names, *papers) if re.findall(r"\d+", name) == numbers])
    if like:
        hint = f"did you mean {like!r}?"
    elif of_paper := [figure for of, _, figure in split if of == paper]:
        hint = f"{paper} has {', '.join(of_paper)}"
    else:
        hint = f"name a paper, for all of its figures, or PAPER.FIGURE; the papers are {', '.join(papers)}"
    raise ConfigError(f"unknown figure {word!r}; {hint}")


def _plain(word: str) -> str:
    short = re.sub(r"\btab(?:le)?[. _-]*(?=\d)", "table", re.sub(r"\bfig(?:ure)?[. _-]*(?=\d)", "fig", word.lower()))
    return re.sub(r"(?<=[a-z])0+(?=\d)", "", short)
