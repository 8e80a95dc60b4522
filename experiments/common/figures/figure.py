"""A figure: its name, the rows that it needs, and how they become a picture, verdicts and a sentence. No torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.claims.verdicts import ON_ONE_CORE, Verdict, counted
from experiments.common.figures.paper_settings import is_of_paper
from experiments.common.figures.style import (
    COLUMN_IN,
    ORIGIN_LINE,
    Canvas,
    Picture,
    Table,
    caption_text,
    plt,
    save,
    style,
    titled,
)
from ssfx.core.case import Case, ClusterChoice
from ssfx.core.rows import Row

Drawing = Callable[["Figure", list[Row]], Picture | None]
Judging = Callable[["Figure", list[Row]], Sequence[Verdict]]


@dataclass(frozen=True)
class Figure:
    """One figure or table: what it is called, which rows it needs and how they become pictures.

    `drawing(figure, rows)` gives the picture and the lines of its CSV, None when the rows do not suffice yet.
    `judging(figure, rows)` gives verdicts on claims. `needs` maps fields of a Case to the value they must have, or to a
    test of it; without, the figure is computed and takes no rows. `command` makes such rows. `about` names artifacts or
    claims of the ledger, by default the artifact of its own name. `said(rows)` is one line of plain text that says what
    the rows show, by default the `finding` of its drawing, else how many verdicts came out how. `lacks(rows)` says
    which runs it would also draw, how long they take and the command, a line each. `notes` are sentences for pages that
    show the figure: what its marks mean, what the paper leaves open.
    """

    name: str
    title: str
    drawing: Drawing
    judging: Judging | None = None
    _: KW_ONLY
    needs: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    about: tuple[str, ...] | None = None
    said: Callable[[list[Row]], str] | None = None
    lacks: Callable[[list[Row]], Sequence[str]] | None = None
    notes: tuple[str, ...] = ()
    script: Path = Path()

    def __post_init__(self) -> None:
        words = [f"{field}={value}" for field, value in self.needs.items() if isinstance(value, str) and value]
        usual = " ".join(("ssfx", "run", *words) if self.needs else ("ssfx", "figures", self.name))
        object.__setattr__(self, "command", self.command or usual)

    @property
    def claims(self) -> tuple[str, ...]:
        """Artifacts or claims of the ledger that it is about."""
        return (self.name,) if self.about is None else self.about

    def draw(self, rows: list[Row], out: Path) -> list[Path]:
        """Write <name>.png, .pdf, .svg and .csv into `out` and return their paths, none if the rows do not suffice."""
        with style():
            made = self.drawing(self, rows)
            if made is None:
                return []
            canvas, table, *used = made
            titled(canvas, self.title)
            return save(canvas, self.name, table, used[0] if used else rows, out)

    def judge(self, rows: list[Row]) -> Sequence[Verdict]:
        """Return its own verdicts on claims; a value without a command of its own comes from the figure's."""
        return [
            one
            if one.command or one.source == "none"
            else replace(one, command=self.command, cost=one.cost or ON_ONE_CORE)
            for one in (self.judging(self, rows) if self.judging else ())
        ]

    def finding(self, rows: list[Row]) -> str:
        """Return what the rows show, in one line."""
        said = self.said or getattr(self.drawing, "finding", None)
        return str(said(rows)) if said else counted(self.judge(rows))

    def shows(self, case: Case) -> bool:
        """True when the figure needs runs like that of `case`; of shared models only one that says so.

        A figure of a paper takes no simulations of settings that are not the paper's.
        """
        if case.sharding != "none" and "sharding" not in self.needs:
            return False
        fits = bool(self.needs) and all(_fits(getattr(case, field), value) for field, value in self.needs.items())
        return fits and is_of_paper(case)

    def reads(self, experiment: str) -> bool:
        """True when the figure needs rows of that experiment."""
        return bool(self.needs) and ("experiment" not in self.needs or _fits(experiment, self.needs["experiment"]))

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows this figure needs; of one case measured twice on one machine, the newest."""
        newest: dict[tuple[str, str, str], Row] = {}
        asked = (row for name, some in _by_experiment(rows).items() if self.reads(name) for row in some)
        for row in sorted((row for row in asked if self.shows(row.case)), key=lambda row: row.origin.date):
            newest[row.run_id, row.origin.kind, row.origin.hardware] = row
        return [newest[key] for key in sorted(newest)]


_grouped: tuple[Sequence[Row], int, dict[str, list[Row]]] = ((), 0, {})


def _by_experiment(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by experiment; those of the latest list are kept, as every figure asks the same list."""
    global _grouped
    if _grouped[0] is not rows or _grouped[1] != len(rows):
        _grouped = rows, len(rows), grouped(rows, lambda row: row.case.experiment)
    return _grouped[2]


def simulated(experiment: str) -> dict[str, Any]:
    """Return the needs of a figure of an experiment's simulated rows."""
    return {"experiment": experiment, "calibration": bool}


@dataclass(frozen=True)
class Sketch:
    """Axes side by side, (title, x, y) each, of so many columns' width. `draw(axes, rows)` gives the lines of the CSV.

    It gives none where the rows do not suffice. `origin` may depend on the rows, and so may the rows of `of`.
    """

    draw: Callable[..., Table]
    axes: Sequence[tuple[str, str, str]]
    origin: str | Callable[[list[Row]], str]
    size_in: tuple[float, float] = (1.4, 2.2)
    of: Callable[[list[Row]], list[Row]] = list
    needs_rows: bool = False

    def __call__(self, figure: Figure, rows: list[Row]) -> Picture | None:
        """Return the picture."""
        used = self.of(rows)
        if self.needs_rows and not used:
            return None
        size_in = self.size_in[0] * COLUMN_IN, self.size_in[1]
        canvas, grid = plt.subplots(1, len(self.axes), figsize=size_in, layout="constrained", squeeze=False)
        table = self.draw(*grid[0], used)
        for axis, (title, x, y) in zip(grid[0], self.axes, strict=True):
            name = used[0].case.model if used else figure.title
            axis.set(**{key: value for key, value in (("xlabel", x), ("ylabel", y)) if value})
            axis.set_title(title.format(name), loc="left", fontweight="bold")
            if y:
                axis.grid()
        said = self.origin if isinstance(self.origin, str) else self.origin(used)
        say_origin(canvas, caption_text([said], canvas.get_figwidth()) if self.needs_rows else said)
        return canvas, table, used


def say_origin(canvas: Canvas, origin: str) -> None:
    """Set the line below a picture that says where its numbers come from."""
    canvas.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)


def _fits(found: object, wanted: Any) -> bool:
    if isinstance(found, ClusterChoice) and isinstance(wanted, str):
        found = str(found)
    return bool(wanted(found)) if callable(wanted) else found == wanted
