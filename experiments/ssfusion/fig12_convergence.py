"""SSFusion Fig. 12 (Experiment 2): quality after training, relative to dense training, over seeds, and its curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.values import METHODS
from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.evaluation.gaps import LONG, Finals, judged_gaps, trained
from experiments.common.figures.auto import AUTO, LABEL, budget_said, mark_names
from experiments.common.figures.paper_words import OWN, RIVALS, scheme_name
from experiments.common.figures.style import COLUMN_IN, frame, save, scheme_colour, style
from ssfx.core.errors import RunError
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import DENSE_BASELINE, Panel, Spread, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.fig12"
TITLE = "Fig. 12: quality during and after training, small models of the paper's four families"
CLAIMS = (NAME, "ssfusion.headline.accuracy")
NEEDS = {"experiment": ("convergence", "time_to_quality", LONG).__contains__}
COMMAND = "ssfx run experiment=time_to_quality"
COST = "about an hour on two cores"
NOTES = (
    "The models are small members of the paper's families on embedded data: orders between schemes can be held against "
    "the paper, levels cannot. On the right, every run relative to the median of dense training; a bar is the median.",
    "Panels on CIFAR-10 and WikiText-2 are of experiment=long_quality, which has 2,000 steps. A claim is judged by "
    "these once they have the seeds and the methods that it is about, else by the short tasks.",
)

QUALITY = {"f1": "F1", "top1": "top-1 accuracy", "perplexity": "perplexity"}
"""Metrics of quality, the first that a row has; the last is better where it is lower."""
FAMILIES = {"resnet": "resnet152", "vgg": "vgg19", "lstm": "lstm", "bert": "bert"}
PANELS = {
    "resnet": "(a) ResNet on digits",
    "vgg": "(b) VGG on digits",
    "lstm": "(c) LSTM on text",
    "bert": "(d) BERT on questions",
}
LONG_PANELS = {"vgg": "(b) VGG on CIFAR-10", "lstm": "(c) LSTM on WikiText-2", "resnet": "(a) ResNet on CIFAR-10"}
SHOWN = (DENSE_BASELINE, *RIVALS, "per_tensor", "fused_all", OWN[-1], AUTO)
"""The last is not of the paper and in no verdict."""
ORDERED = ("oktopk", "spardl", "omgs", "cupcake")
"""Rivals that the paper has below SSFusion."""
LAYERWISE = ("hipress", "espresso")
"""Rivals that the paper has beside it."""
DENSITY = 0.01
"""Of long runs, where a scheme has several: the paper's."""
SEEDS = 3
"""Runs of a scheme from which on an order is judged."""
CLOSE = 0.02
"""Relative difference within which quality is about equal."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write, per task, the curves of the schemes and their final quality relative to dense training.

    The picture shows the longest training of a family that has enough seeds; the table has all.
    """
    every = sorted((panel for panel in panels(rows) if DENSE_BASELINE in panel.bars), key=_title)
    if not every:
        return []
    shown = [panel for panel in every if panel in _longest(every)]
    import matplotlib.pyplot as plt

    curves = any(_curve(row) for panel in shown for bar in panel.bars.values() for row in bar)
    columns = 2 if curves else 1
    with style():
        heights = [0.55 + 0.17 * len(_bars(panel)) for panel in shown]
        figure, grid = plt.subplots(
            len(shown), columns, figsize=(2 * COLUMN_IN, sum(heights) + 1.0),
            squeeze=False, height_ratios=heights, layout="constrained",
        )  # fmt: skip
        for axes, panel in zip(grid, shown, strict=True):
            if curves:
                _draw_curves(axes[0], panel)
            _draw_finals(axes[-1], panel)
            axes[0].set_title(_title(panel), loc="left", fontweight="bold")
        kinds = sorted({f"{panel.kind} on {panel.hardware}" for panel in shown})
        runs = sorted({count for panel in shown for count in panel.runs})
        said = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        where = "; ".join(kinds)
        origin = f"{where[0].upper()}{where[1:]}, {said} seeds per scheme. Diamonds: printed in the paper."
        origin = "\n".join([origin, *budget_said(rows)])
        frame(figure, TITLE if columns == 2 else TITLE.replace("during and after", "after"), origin, ncols=4)
        return save(figure, NAME, [line for panel in every for line in lines(panel)], rows, out)


def finding(rows: list[Row]) -> str:
    """Return, per task, the median quality of every scheme."""
    parts = []
    for panel in panels(rows):
        values = ", ".join(f"{line['scheme']} {line['median']:.3g}" for line in lines(panel))
        parts.append(f"{panel.case.model} ({_quality(panel)}): {values}")
    return "; ".join(parts)


def judge(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the orders that the paper states, from tasks with enough seeds."""
    found = []
    finals: dict[str, Mapping[str, Sequence[float]]] = {}
    longest: list[Mapping[str, Sequence[float]]] = []
    for family in FAMILIES:
        own = [panel for panel in panels(rows) if _family(panel) == family and DENSE_BASELINE in panel.bars]
        longest_first = sorted(own, key=lambda panel: -panel.case.steps)
        sets = [Finals(_finals(panel), _trained(panel)) for panel in longest_first]
        claims = {scheme: _claim(family, scheme) for scheme in (OWN[-1], *ORDERED)}
        found += [
            replace(one, command=COMMAND, cost=COST)
            for one in judged_gaps(sets, claims, _printed(own[0]) if own else {})
        ]
        enough = [{name: values for name, values in one.values.items() if len(values) >= SEEDS} for one in sets]
        enough = [one for one in enough if DENSE_BASELINE in one and OWN[-1] in one]
        if enough:
            longest.append(enough[0])
            # of as many rivals the longest training
            finals[family] = max(enough, key=lambda one: sum(name in one for name in (*ORDERED, *LAYERWISE)))
    for family, relative in finals.items():
        claim = f"ssfusion.exp2.{FAMILIES[family]}.order"
        rivals = [scheme for scheme in ORDERED if scheme in relative]
        if rivals:
            found.append(_order(claim, relative, rivals))
    if longest:
        gaps = [median(relative[OWN[-1]]) - 1 for relative in longest]
        found.append(_equal("ssfusion.headline.accuracy", gaps, "that of dense training"))
    layers = []
    for relative in finals.values():
        others = [median(relative[name]) for name in LAYERWISE if name in relative]
        layers += [median(relative[OWN[-1]]) / other - 1 for other in others]
    if layers:
        found.append(_equal("ssfusion.exp2.layerwise_equal", layers, "that of HiPress and Espresso"))
    return found


def lines(panel: Panel) -> list[dict[str, Any]]:
    """Return one line of the figure's table per scheme: its final quality, also relative to dense training."""
    name = _quality(panel)
    relative = _finals(panel) if DENSE_BASELINE in panel.bars else {}
    found = []
    for label, rows in panel.bars.items():
        spread = Spread.of(rows, name)
        scheme = rows[0].case.scheme
        found.append(
            {
                **panel.columns(),
                "scheme": label,
                "metric": name,
                "median": spread.median,
                "lowest": spread.low,
                "highest": spread.high,
                "runs": spread.runs,
                "relative_to_dense": median(relative[scheme]) if scheme in relative else None,
                "paper_relative_to_dense": _printed(panel).get(scheme),
            }
        )
    return found


def _order(claim: str, relative: Mapping[str, Sequence[float]], rivals: Sequence[str]) -> Verdict:
    """Return whether SSFusion is not above dense training and above every rival, beyond the spread of seeds or not."""
    ours = relative[OWN[-1]]
    above = [rival for rival in rivals if median(ours) > median(relative[rival])]
    clear = [rival for rival in above if min(ours) > max(relative[rival])]
    below = any(max(ours) < min(relative[rival]) for rival in rivals)
    outcome: Outcome = "agrees" if len(clear) == len(rivals) else "partly" if above and not below else "disagrees"
    here = f"above {len(above)} of {len(rivals)}, beyond the seeds in {len(clear)}"
    said = f"Small model and data; the rivals that were run: {', '.join(map(scheme_name, rivals))}."
    return Verdict(claim, outcome, here, "measured", "", said, COMMAND, COST)


def _equal(claim: str, gaps: Sequence[float], what: str) -> Verdict:
    close = [gap for gap in gaps if abs(gap) <= CLOSE]
    outcome: Outcome = "agrees" if len(close) == len(gaps) else "disagrees"
    here = f"{100 * min(gaps):+.1f} to {100 * max(gaps):+.1f} %"
    said = f"SSFusion's quality over {what}, on small models and data; equal within {100 * CLOSE:g} %."
    return Verdict(claim, outcome, here, "measured", "", said, COMMAND, COST)


def _family(panel: Panel) -> str:
    return next((name for name in FAMILIES if name in panel.case.model), "")


def _longest(found: Sequence[Panel]) -> list[Panel]:
    """Return of each family the longest training with seeds enough of SSFusion to judge it, else the shortest."""
    best: dict[str, Panel] = {}
    for panel in sorted(found, key=lambda panel: panel.case.steps):
        enough = Finals(_finals(panel), "").knows(OWN[-1])
        key = _family(panel) or panel.case.model
        if key not in best or enough:
            best[key] = panel
    return list(best.values())


def _title(panel: Panel) -> str:
    titles = LONG_PANELS if panel.case.experiment == LONG else PANELS
    return titles.get(_family(panel), panel.case.model)


def _trained(panel: Panel) -> str:
    return trained([row for rows in _bars(panel).values() for row in rows])


def _claim(family: str, scheme: str) -> str:
    subject = next(name for name, ours in METHODS.items() if ours == scheme)
    return f"ssfusion.exp2.{FAMILIES[family]}.{subject}"


def _bars(panel: Panel) -> dict[str, list[Row]]:
    """Return the runs of the schemes that are shown, by scheme; of several variants of one, the first.

    Of long runs, those of the paper's density and with the usual memory alone.
    """
    found: dict[str, list[Row]] = {}
    for rows in panel.bars.values():
        case = rows[0].case
        if case.experiment == LONG and (
            case.density not in (None, DENSITY) or case.memory not in (None, "none", "residual") or case.scheme_options
        ):
            continue
        found.setdefault(rows[0].case.scheme, rows)
    return {scheme: found[scheme] for scheme in SHOWN if scheme in found}


def _finals(panel: Panel) -> dict[str, list[float]]:
    """Return the final quality of every run over the median of dense training; inverted where lower is better."""
    name = _quality(panel)
    dense = Spread.of(panel.bars[DENSE_BASELINE], name).median if DENSE_BASELINE in panel.bars else 1.0
    found = {}
    for scheme, rows in _bars(panel).items():
        values = [row.metrics[name] or 0.0 for row in rows]
        found[scheme] = [dense / value if name == "perplexity" and value else value / dense for value in values]
    return found


def _quality(panel: Panel) -> str:
    rows = [row for bar in panel.bars.values() for row in bar]
    for name in QUALITY:
        if all(row.metrics.get(name) is not None for row in rows):
            return name
    raise RunError(
        f"row {rows[0].run_id} ({rows[0].case.label}) has neither f1 nor top1 nor perplexity; run with evaluate=true"
    )


def _curve(row: Row) -> Mapping[str, Sequence[float | None]]:
    found: Mapping[str, Sequence[float | None]] = getattr(row, "curve", None) or {}
    return found


def _draw_curves(axis: Axes, panel: Panel) -> None:
    """Draw the median over seeds of every scheme's curve, and the range between the seeds of dense and SSFusion."""
    name = _quality(panel)
    for scheme, rows in _bars(panel).items():
        series = [_curve(row) for row in rows if name in _curve(row)]
        if not series:
            continue
        steps = series[0]["step"]
        values = [[one[name][i] for one in series if i < len(one[name])] for i in range(len(steps))]
        known = [
            (float(step or 0), [value for value in at if value is not None])
            for step, at in zip(steps, values, strict=True)
        ]
        at_steps = [step for step, at in known if at]
        own = scheme in (DENSE_BASELINE, OWN[-1])
        colour = scheme_colour(scheme)
        middle = [median(at) for _, at in known if at]
        axis.plot(at_steps, middle, color=colour, linewidth=1.5 if own else 0.8, zorder=3 if own else 2)
        if own:
            low, high = [min(at) for _, at in known if at], [max(at) for _, at in known if at]
            axis.fill_between(at_steps, low, high, color=colour, alpha=0.15, linewidth=0)
    if name == "perplexity":
        axis.set_yscale("log")
    axis.set_ylabel(QUALITY[name])
    axis.set_xlabel("optimizer steps")
    axis.grid()


def _draw_finals(axis: Axes, panel: Panel) -> None:
    finals = _finals(panel)
    printed = _printed(panel)
    for y, (scheme, values) in enumerate(finals.items()):
        colour = scheme_colour(scheme)
        look: dict[str, Any] = {"s": 10, "color": colour, "linewidths": 0, "zorder": 3}
        axis.scatter([100 * value for value in values], [y] * len(values), label="one run" if y == 0 else "", **look)
        middle = 100 * median(values)
        axis.plot([middle, middle], [y - 0.33, y + 0.33], color=colour, linewidth=2)
        if scheme in printed:
            mark: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 4}
            axis.plot([100 * printed[scheme]], [y], "D", label="paper, over its dense training", **mark)
    dense = [100 * value for value in finals[DENSE_BASELINE]]
    axis.axvspan(min(dense), max(dense), color="#ececec", zorder=0, label="range of dense training")
    axis.set_yticks(range(len(finals)), [LABEL if scheme == AUTO else scheme_name(scheme) for scheme in finals])
    mark_names(axis)
    axis.set_ylim(len(finals) - 0.5, -0.5)
    axis.set_xlabel("final quality over dense training (%)")
    axis.grid(axis="x")


def _printed(panel: Panel) -> dict[str, float]:
    """Return the final quality that the paper prints for the panel's family, relative to its dense training."""
    family = FAMILIES.get(_family(panel))
    start = f"ssfusion.exp2.{family}."
    found = {}
    for claim in (claim for claim in claims_by_id().values() if claim.id.startswith(start)):
        if claim.bounds:
            found["ddp" if claim.subject == "dense" else METHODS.get(claim.subject, "")] = claim.bounds[0], claim.unit
    if DENSE_BASELINE not in found:
        return {}
    dense = found[DENSE_BASELINE][0]
    return {
        scheme: dense / value if unit == "ppl" else value / dense
        for scheme, (value, unit) in found.items()
        if scheme != DENSE_BASELINE
    }
