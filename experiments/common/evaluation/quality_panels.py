"""Long runs: curves of what was recorded, and quality of methods, a panel a network, beside what a paper prints."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, expm1
from statistics import median
from textwrap import wrap
from typing import Any

from experiments.common.evaluation.gaps import NO_ROW, SCALE, Task, metric_of
from experiments.common.figures.auto import AUTO, LABEL, budget_said, mark_names
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, caption_text, frame, plt, subplots
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import sent_mark

Methods = Mapping[str, Sequence[Row]]
Point = tuple[float, float, float, float]


def points(row: Row, *columns: str) -> list[tuple[float, ...]]:
    """Return the values of columns of a row's curve, wherever all of them were recorded."""
    every = zip(*(row.curve.get(column, ()) for column in columns), strict=False)
    return [tuple(value for value in point if value is not None) for point in every if None not in point]


@dataclass(frozen=True)
class Curves:
    """A column of the curves of long runs: the median over seeds by method, the range of the seeds as a band.

    A method of `colours` without rows is named in the legend as one without; `set_to` draws a dashed line across.
    """

    methods: Callable[[list[Row]], Methods]
    colours: Mapping[str, str]
    column: str
    ylabel: str
    set_to: float | None = None

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return the curves; None where no row has the column."""
        own = self.methods(rows)
        found = {label: points for label in self.colours if (points := median_points(own.get(label, ()), self.column))}
        if not found:
            return None
        table: list[dict[str, Any]] = []
        figure, axis = plt.subplots(figsize=(1.7 * COLUMN_IN, 2.7), layout="constrained")
        keys: dict[str, Any] = {}
        for label, colour in self.colours.items():
            if label not in found:
                (keys[f"{label}: {NO_ROW}"],) = axis.plot([], [], color=colour, linestyle=":")
                table.append({"method": label, "median": NO_ROW})
                continue
            keys[label] = plot_points(axis, found[label], colour)
            table += [{"method": label, "x": a, "low": b, "median": c, "high": d} for a, b, c, d in found[label]]
        if self.set_to is not None:
            keys["set"] = axis.axhline(self.set_to, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        axis.set(xlabel="optimizer steps", ylabel=self.ylabel)
        axis.grid()
        figure.legend(keys.values(), keys.keys(), loc="outside upper center", ncols=3, columnspacing=1.2)
        drawn = [row for label in found for row in own[label]]
        axis.set_title(drawn[0].case.model, loc="left", fontweight="bold")
        figure.supxlabel(caption_text([origin(drawn)], figure.get_figwidth()), x=0.01, ha="left", **ORIGIN_LINE)
        return figure, table, drawn


def plot_points(axis: Axes, points: Sequence[Point], colour: str, *, band: bool = True, **look: Any) -> Any:
    """Draw a line through the medians of points and a band between their ends; return the line."""
    at, low, middle, high = ([point[i] for point in points] for i in range(4))
    (line,) = axis.plot(at, middle, color=colour, **{"linewidth": 1.2, **look})
    if band:
        axis.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    return line


def origin(rows: Sequence[Row], shown: str = "median and range of") -> str:
    """Return the line that says where the runs come from, and what is shown of their seeds."""
    return f"{trainings(rows)}, {shown} {len({row.case.seed for row in rows})} seeds; {SCALE}."


def trainings(rows: Sequence[Row]) -> str:
    """Return where the runs come from, how long they trained and on how many workers."""
    steps = ", ".join(f"{steps:,}" for steps in sorted({row.case.steps for row in rows}))
    ranks = ", ".join(map(str, sorted({row.case.world_size for row in rows})))
    return f"{where(rows)}: {steps} steps, {ranks} workers"


def where(rows: Sequence[Row]) -> str:
    """Return what the quality of the rows was measured on, as the beginning of a sentence."""
    virtual = "measured on virtual ranks in one process"
    words = "; ".join(
        sorted({virtual if row.case.virtual else f"{row.origin.kind} on {row.origin.hardware}" for row in rows})
    )
    return words[:1].upper() + words[1:]


def one_run(methods: Methods) -> dict[tuple[str, ...], list[int]]:
    """Return the seeds in which methods trained alike, by the names of these methods.

    They sent the same bytes, and every recorded digit of their loss and quality is equal.
    """
    alike: dict[str, list[str]] = {}
    seeds: dict[str, int] = {}
    for name, rows in methods.items():
        for row in (row for row in rows if row.curve):
            metric = metric_of(row)
            recorded = [row.curve.get(column) for column in ("step", "loss", metric)]
            key = repr((row.case.seed, row.metrics[metric], row.metrics.get("sent_bytes"), recorded))
            alike.setdefault(key, []).append(name)
            seeds[key] = row.case.seed
    found: dict[tuple[str, ...], list[int]] = {}
    for key, names in alike.items():
        if len(names) > 1:
            found.setdefault(tuple(names), []).append(seeds[key])
    return found


def median_points(rows: Sequence[Row], column: str) -> list[Point]:
    """Return step, lowest, median and highest value over seeds of a column, at every step where it was recorded."""
    places: dict[float, list[float]] = {}
    for step, value in (point for row in rows for point in points(row, "step", column)):
        places.setdefault(step, []).append(value)
    return [(step, min(found), median(found), max(found)) for step, found in sorted(places.items())]


# ---- a panel a network -----------------------------------------------------------------------------------------------

QUALITY = {"f1": "F1", "top1": "top-1 accuracy", "perplexity": "perplexity"}
LINE_IN = 0.18
"""Height of the line of one method."""
ABSENT: dict[str, Any] = {"va": "center", "fontsize": 6, "color": "#777777", "fontstyle": "italic"}


@dataclass(frozen=True)
class Panel:
    """One network: its methods from top to bottom with their colours, and the one that the others are held against.

    `task` is None where no long run is of that network; `absent` then says what makes them. `printed` is what the paper
    prints for a method over the baseline. Methods of `bold` have bands in the curves; without any all have. `step_s`:
    seconds of a step by method, for the same curves over time; `clock` says after "seconds" whose these are.
    """

    title: str
    task: Task | None
    colours: Mapping[str, str]
    baseline: str
    printed: Mapping[str, float] = field(default_factory=dict)
    bold: Collection[str] = ()
    absent: str = ""
    step_s: Mapping[str, float] = field(default_factory=dict)
    clock: str = ""

    @property
    def methods(self) -> list[str]:
        """The methods that have a line: all but scheme=auto without a row; without a task, those that are printed."""
        if self.task is None:
            return [name for name in self.colours if name in self.printed or name == self.baseline]
        return [name for name in self.colours if name in self.task.methods or name != AUTO]

    @property
    def rows(self) -> list[Row]:
        """The rows that are drawn."""
        return [row for name in self.methods for row in self.of(name)]

    @property
    def common(self) -> list[int]:
        """The seeds that every method with rows has, as a lucky seed must be so for all; every seed without such."""
        known = [name for name in self.methods if self.of(name)]
        shared = self.task.shared(*known) if self.task and known else []
        return shared or sorted({row.case.seed for row in self.rows})

    def of(self, method: str) -> Sequence[Row]:
        """Return the rows of a method."""
        return self.task.methods.get(method, ()) if self.task else ()

    def sent(self, method: str) -> str:
        """Return what a method sent that sent far more than it was asked to, "dense" or "54 %"; else ""."""
        return sent_mark(self.of(method), self.of(self.baseline)) if self.of(method) else ""

    def mark(self, method: str) -> str:
        """Return the same for its name; else ""."""
        sent = self.sent(method)
        return f" (sent {sent})" if sent else ""

    @property
    def against(self) -> str:
        """The method that others are shown against: the baseline, or the first that has rows where it has none."""
        return next((name for name in (self.baseline, *self.colours) if self.of(name)), self.baseline)

    def relative(self, method: str) -> list[float]:
        """Return the final quality of a method over that of what it is shown against, for each seed of both."""
        return [exp(gap) for gap in self.task.over(method, self.against)] if self.task else []


@dataclass(frozen=True)
class Quality:
    """Quality in long runs, a panel a network: curves on the left, final quality over the baseline's on the right.

    A method without rows, and all of a panel without a task, are named with NO_ROW. `words` name a method.
    """

    panels: Callable[[list[Row]], Sequence[Panel]]
    words: Callable[[str], str] = str

    def __call__(self, what: Figure, rows: list[Row]) -> Picture | None:
        """Return every panel; None where none has a row."""
        panels = self.panels(rows)
        own = [row for panel in panels for row in panel.rows]
        if not own:
            return None
        heights = [0.6 + LINE_IN * max(len(panel.methods), 6 if panel.rows else 2) for panel in panels]
        columns = 3 if any(panel.step_s for panel in panels) else 2
        size_in = ((2 + 0.35 * (columns - 2)) * COLUMN_IN, sum(heights) + 0.9)
        figure, grid = subplots(len(panels), columns, figsize=size_in, height_ratios=heights)
        for axes, panel in zip(grid, panels, strict=True):
            axes[0].set_title(panel.title, loc="left", fontweight="bold").set_in_layout(False)
            _draw_curves(axes[0], panel)
            for axis in axes[1:-1]:
                _draw_curves(axis, panel, over_time=True)
            _draw_finals(axes[-1], panel, self.words)
        frame(figure, what.title, "\n".join([_origin(own, panels), *budget_said(own)]), ncols=4)
        return figure, [line for panel in panels for line in lines(panel)], own


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the table per method: its final quality, also over the baseline's by seed, and the paper's.

    "over_baseline" is the median over the seeds that both have, "baseline" the baseline's own median over these.
    """
    found = []
    for method in panel.methods:
        rows = panel.of(method)
        line: dict[str, Any] = {"panel": panel.title, "method": method, "model": rows[0].case.model if rows else NO_ROW}
        if rows:
            name = metric_of(rows[0])
            values = [float(row.metrics[name] or 0.0) for row in rows]
            relative, shared = panel.relative(method), panel.task.shared(method, panel.against) if panel.task else []
            base = [float(row.metrics[name] or 0.0) for row in panel.of(panel.against) if row.case.seed in shared]
            line |= {
                "metric": name,
                "median": median(values),
                "lowest": min(values),
                "highest": max(values),
                "runs": len(rows),
                "steps": rows[0].case.steps,
                "sent": panel.sent(method),
                "baseline": median(base) if base else None,
                "seeds_of_both": len(shared),
                "over_baseline": median(relative) if relative else None,
                "step_s": panel.step_s.get(method),
            }
        found.append({**line, "paper_over_baseline": panel.printed.get(method)})
    return found


def _origin(rows: Sequence[Row], panels: Sequence[Panel]) -> str:
    seeds = sorted({len(own) for panel in panels if panel.task for own in panel.task.methods.values()})
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{trainings(rows)}, {number} seeds; {SCALE}.\n"
        "Curves are of the seeds that all methods of a panel have, where there are such. "
        "Grey: gaps that noise hides (95 %) of as many seeds as the baseline has."
    )


def _draw_curves(axis: Axes, panel: Panel, *, over_time: bool = False) -> None:
    """Draw every method's quality, the median over the panel's `common` seeds, by steps or by time."""
    rows = panel.rows
    if not rows or (over_time and not panel.step_s):
        axis.set_axis_off()
        if not rows and not over_time:
            said = "\n".join([f"{NO_ROW} of this network", *wrap(panel.absent, 100, break_long_words=False)])
            axis.text(0.02, 0.5, said, transform=axis.transAxes, **ABSENT).set_in_layout(False)
        return
    name, common = metric_of(rows[0]), panel.common
    longest_s = max(panel.step_s.values(), default=0.0) * rows[0].case.steps
    unit, unit_s = ("minutes", 60.0) if longest_s > 180 else ("seconds", 1.0)
    for method in panel.methods:
        own = [row for row in panel.of(method) if row.case.seed in common]
        step = panel.step_s.get(method, 0.0) / unit_s if over_time else 1.0
        points = [(step * at, low, middle, high) for at, low, middle, high in median_points(own, name)]
        if points and step:
            bold = not panel.bold or method in panel.bold
            look = {"linewidth": 1.5 if bold else 0.8, "zorder": 3 if bold else 2}
            plot_points(axis, points, panel.colours[method], band=bold, **look)
    if name == "perplexity":
        from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel("" if over_time else QUALITY[name])
    axis.tick_params(labelleft=not over_time)
    axis.set_xlabel(f"{unit}{panel.clock}" if over_time else "optimizer steps")
    axis.grid()


def _draw_finals(axis: Axes, panel: Panel, words: Callable[[str], str]) -> None:
    from matplotlib.colors import to_rgb

    if panel.task is None and not panel.printed:
        axis.set_axis_off()
        return
    drawn: list[float] = [100.0]
    if panel.rows and panel.task and panel.task.knows(panel.against):
        half = panel.task.gap(panel.against, panel.against).half
        if half is not None:
            axis.axvspan(100 + 100 * expm1(-half), 100 + 100 * expm1(half), color="#ececec", zorder=0)
    absent = []
    printed = panel.printed if panel.against == panel.baseline else {}
    for y, method in enumerate(panel.methods):
        colour = panel.colours[method]
        values = [100 * value for value in panel.relative(method)]
        drawn += values
        if values:
            axis.scatter(values, [y] * len(values), s=10, color=colour, linewidths=0, zorder=3)
            axis.plot([median(values)] * 2, [y - 0.33, y + 0.33], color=colour, linewidth=2)
        else:
            absent.append(y)
        if method in printed:
            drawn.append(100 * printed[method])
            mark: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 4}
            axis.plot([100 * printed[method]], [y], "D", label="paper, over its own baseline", **mark)
    low, high = min(drawn), max(drawn)
    margin = 0.06 * max(high - low, 5.0)
    axis.set_xlim(low - margin, high + margin)
    axis.scatter([], [], s=10, color="#444444", linewidths=0, label="one seed")
    for y in absent if panel.task else ():
        taken = panel.methods[y] in printed and 100 * printed[panel.methods[y]] < (low + high) / 2
        said = f"no run of a seed of {words(panel.against)}" if panel.of(panel.methods[y]) else NO_ROW
        axis.text(
            0.98 if taken else 0.02,
            y,
            said,
            ha="right" if taken else "left",
            transform=axis.get_yaxis_transform(),
            **ABSENT,
        )
    names = [(LABEL if method == AUTO else words(method)) + panel.mark(method) for method in panel.methods]
    axis.set_yticks(range(len(names)), names)
    for tick, method in zip(axis.get_yticklabels(), panel.methods, strict=True):
        if panel.of(method):  # a name is the key of its curve, too; of a light colour a darker shade
            red, green, blue = to_rgb(panel.colours[method])
            shade = 0.65 if 0.3 * red + 0.6 * green + 0.1 * blue > 0.6 else 1.0
            tick.set(color=(shade * red, shade * green, shade * blue), fontweight="bold")
        elif panel.task:
            tick.set_color("#777777")
    mark_names(axis)
    axis.set(ylim=(len(names) - 0.4, -0.6), xlabel=f"final quality, % of that of {words(panel.against)}")
    axis.grid(axis="x")
