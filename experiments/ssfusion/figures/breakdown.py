"""Where SSFusion's time goes: Fig. 9 (collectives), Fig. 13 (parts of an iteration), and where its orders hold."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.simulated import NAMES, claim_columns
from experiments.common.claims.values import BASELINES, LEAST, METHODS, SPEED
from experiments.common.figures.auto import (
    BY_QUALITY,
    COLOUR,
    LABEL,
    NO_PRINTED_TIMES,
    auto_of,
    mark_bar,
    mark_names,
    say_absent,
)
from experiments.common.figures.figure import Figure, say_origin, simulated
from experiments.common.figures.gains import listed
from experiments.common.figures.grouped_bars import PARTS, breakdown, judge_cells
from experiments.common.figures.grouped_bars import finding as breakdown_finding
from experiments.common.figures.paper_words import MODELS, SCHEMES, TIMES, columns, panel_order, scheme_name
from experiments.common.figures.style import COLUMN_IN, Axes, Picture, caption_text, frame, plt, subplots
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell, as_the_paper_ran, cells

# ---- Fig. 9: all-gather and all-reduce of one iteration's gradient, from 8 to 64 GPUs --------------------------------

COLLECTIVES = {"fused_all": ("all-gather", "#d55e00"), "ssgd": ("all-reduce", "#5f5f5f")}
ORDER = {"modelA": "first", "modelB": "second"}
MARKERS = {"bert_large": "o", "gpt2_large": "s"}


def _fig9(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return one line per model and collective over the number of GPUs, an axis for each calibration."""
    shown = cells(rows)
    if not shown:
        return None
    calibrations = sorted(grouped(shown, lambda cell: cell.calibration).items())
    canvas, grid = subplots(1, len(calibrations), figsize=(2 * COLUMN_IN, 3.0), sharey=True)
    for (_, part), axis in zip(calibrations, grid.flat, strict=True):
        _collective_panel(axis, part)
    grid.flat[0].set_ylabel("time per iteration (s)")
    origin = "Simulated: one exchange of the whole gradient. Open: printed in the paper, for models without names."
    frame(canvas, figure.title, origin, ncols=4)
    table = [line for cell in shown for line in collective_lines(cell)] + claim_columns("ssfusion.fig9", rows)
    return canvas, table


def _fig9_finding(rows: list[Row]) -> str:
    """Return by how much each collective grows from 8 to 64 GPUs."""
    claims = claims_by_id()
    grown = [verdict for verdict in FIG9.judge(rows) if claims[verdict.claim].metric == "ratio"]
    parts = [f"{claims[verdict.claim].subject} {verdict.ours} ({verdict.calibration})" for verdict in grown]
    return f"64 GPUs over 8: {', '.join(parts)}" if parts else "not simulated on both 8 and 64 GPUs"


def collective_lines(cell: Cell) -> list[dict[str, Any]]:
    """Return one line of the figure's table per collective."""
    return [
        {
            **columns(cell, scheme, "model cluster world_size origin hardware"),
            "collective": COLLECTIVES[scheme][0],
            "message_bytes": cell.value(scheme, "contributed_bytes"),
            "comm_s": cell.value(scheme, "comm_s"),
            **columns(cell, scheme, "extrapolated run"),
        }
        for scheme in cell.rows
        if scheme in COLLECTIVES
    ]


def _collective_panel(axis: Axes, part: list[Cell]) -> None:
    for model in sorted({cell.case.model for cell in part}):
        for scheme, (collective, colour) in COLLECTIVES.items():
            own = [cell for cell in part if cell.case.model == model and scheme in cell.rows]
            points = sorted((cell.case.world_size, cell.value(scheme, "comm_s")) for cell in own)
            axis.plot(
                *zip(*points, strict=True),
                color=colour,
                marker=MARKERS.get(model, "^"),
                markersize=4,
                linewidth=1,
                linestyle=":",
                label=f"{collective}, {MODELS.get(model, model)}",
            )
    for claim in claims_of("ssfusion.fig9"):
        if claim.metric == "time_s" and claim.bounds:
            colour = dict(COLLECTIVES.values())[claim.subject]
            axis.plot(
                claim.conditions["gpus"],
                claim.bounds[0],
                color=colour,
                linestyle="",
                fillstyle="none",
                marker=MARKERS[NAMES[claim.conditions["model"]]],
                markersize=7,
                label=f"{claim.subject}, paper's {ORDER[claim.conditions['model']]} model",
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    sizes = sorted({cell.case.world_size for cell in part})
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.set_xlabel("GPUs")
    axis.grid()
    axis.set_title(TIMES.get(part[0].calibration, part[0].how), loc="left")


FIG9 = Figure(
    "ssfusion.fig9",
    "Fig. 9: time of All-Gather and All-Reduce per iteration, by number of GPUs",
    _fig9,
    judge_cells,
    needs=simulated("collective_scaling"),
    said=_fig9_finding,
    notes=(
        "Both collectives move messages as long as the gradient: ssgd adds them up (dense), fused_all gathers half of "
        "the elements with their indices. The ideal is 0: one device exchanges nothing.",
        "Open symbols, published: the paper's first (circle) and second model, which it does not name, on clusters "
        "that it does not name; BERT-large and GPT2-large have 2.3 times the bytes of one another, its times 2.4 "
        "times.",
    ),
)


# ---- Fig. 13: parts of an iteration, and what SSFusion saves of it ---------------------------------------------------

SUBJECT = "ssfusion_oi"
LIMITS = (-100.0, 100.0)


def _fig13(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return bars of the parts per scheme, and below them what SSFusion saves of the rivals' communication."""
    shown = sorted(cells(rows), key=lambda cell: (panel_order(cell), cell.calibration))
    if not shown:
        return None
    calibrations = sorted({cell.calibration for cell in shown})
    models = list(dict.fromkeys(cell.case.model for cell in shown))
    heights = [1.55, 1.15] * len(models)
    canvas, grid = subplots(
        2 * len(models), len(calibrations), figsize=(2 * COLUMN_IN, sum(heights) + 1.4), height_ratios=heights
    )
    for cell in shown:
        line, column = 2 * models.index(cell.case.model), calibrations.index(cell.calibration)
        _draw_parts(grid[line, column], cell, any(map(auto_of, shown)))
        _draw_savings(grid[line + 1, column], cell)
        letter = "ab"[models.index(cell.case.model) % 2]
        title = f"({letter}) {MODELS.get(cell.case.model, cell.case.model)}, {TIMES.get(cell.calibration, cell.how)}"
        grid[line, column].set_title(title, loc="left", fontweight="bold")
        for axis in grid[line : line + 2, column]:
            axis.tick_params(labelleft=column == 0)
    origin = "Simulated: one step in virtual time for each scheme. Nothing is fitted to the paper's values."
    frame(canvas, figure.title, origin, ncols=5)
    table = [line for cell in shown for line in part_lines(cell)]
    return canvas, [*table, *claim_columns("ssfusion.fig13", rows)]


def _fig13_finding(rows: list[Row]) -> str:
    """Return, by calibration, what SSFusion saves of its rivals' communication."""
    parts = []
    for calibration, own in sorted(grouped(cells(rows), lambda cell: cell.calibration).items()):
        saved = [value for cell in own for rival in BASELINES if (value := saving(cell, rival)) is not None]
        if saved:
            more = sum(value < 0 for value in saved)
            parts.append(f"{calibration}: more communication than the rival in {more} of {len(saved)}")
    return f"simulated communication of SSFusion, {'; '.join(parts)}" if parts else "no rival beside SSFusion"


def part_lines(cell: Cell) -> list[dict[str, Any]]:
    """Return one line of the figure's table per scheme: its parts in seconds, and what SSFusion saves of them."""
    return [
        {
            **columns(cell, scheme, "model cluster world_size origin hardware scheme sent"),
            "iteration_s": cell.value(scheme, "iteration_s"),
            **{name: cell.value(scheme, name) for name in PARTS},
            "saved_by_ssfusion": listed(saving, cell, scheme),
            **columns(cell, scheme, "extrapolated run"),
        }
        for scheme in cell.rows
    ]


def saving(cell: Cell, rival: str) -> float | None:
    """Return what SSFusion saves of a rival's exposed communication, as a fraction; None where that is too little."""
    if rival == SUBJECT or rival not in cell.rows or SUBJECT not in cell.rows:
        return None
    theirs_s = cell.value(rival, "exposed_comm_s")
    if theirs_s < LEAST * cell.value(rival, "iteration_s"):
        return None
    return 1 - cell.value(SUBJECT, "exposed_comm_s") / theirs_s


def _draw_parts(axis: Axes, cell: Cell, place_for_auto: bool) -> None:
    schemes = [scheme for scheme in SCHEMES if scheme in cell.rows]
    names = [scheme_name(scheme) for scheme in schemes]
    auto = auto_of(cell)
    schemes += [auto] if auto else []
    names += [LABEL] * place_for_auto
    left = [0.0] * len(schemes)
    for name, (label, colour) in PARTS.items():
        width = [1e3 * cell.value(scheme, name) for scheme in schemes]
        axis.barh(range(len(schemes)), width, 0.74, left=left, label=label, color=colour, linewidth=0)
        left = [a + b for a, b in zip(left, width, strict=True)]
    if ideal_s := cell.ideal("iteration_s"):
        axis.axvline(1e3 * ideal_s, color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="ideal: no exchange")
    if auto:
        mark_bar(axis, len(schemes) - 1, left[-1], 0.74, horizontal=True)
    elif place_for_auto:
        say_absent(axis, len(schemes))
    axis.set_yticks(range(len(names)), names)
    axis.set(ylim=(len(names) - 0.4, -0.5), xlabel="time of an iteration (ms)")
    axis.grid(axis="x")
    mark_names(axis)


def _draw_savings(axis: Axes, cell: Cell) -> None:
    for y, rival in enumerate(BASELINES):
        value = saving(cell, rival)
        if value is None:
            axis.text(LIMITS[0] + 3, y, "no ratio: next to nothing to save", va="center", fontsize=5.8, color="#666666")
        else:
            x = max(100 * value, LIMITS[0])
            axis.plot([x], [y], "o", color="#0072b2", markersize=4, label="saved by SSFusion here", clip_on=False)
            if x != 100 * value:
                said = f"{1 - value:.1f} times as much"
                axis.text(x + 4, y, said, va="center", fontsize=5.8, color="#0072b2")
        ran = as_the_paper_ran(cell)
        printed_way = saving(ran, rival) if ran is not cell else None
        if printed_way is not None:
            axis.plot(
                [max(100 * printed_way, LIMITS[0])],
                [y + 0.25],
                "o",
                color="#d55e00",
                fillstyle="none",
                markersize=4,
                label="as the paper ran them",
                clip_on=False,
            )
    for claim in claims_of("ssfusion.fig13"):
        of_model = claim.conditions.get("model") == MODELS.get(cell.case.model)
        if ".comm." in claim.id and claim.bounds and of_model:
            axis.plot(
                [100 * claim.bounds[0]],
                [BASELINES.index(METHODS[claim.baseline or ""])],
                "D",
                color="black",
                fillstyle="none",
                markersize=4,
                label="printed in the paper",
            )
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlim(*LIMITS)
    axis.set_yticks(range(len(BASELINES)), [scheme_name(rival) for rival in BASELINES])
    axis.set(ylim=(len(BASELINES) - 0.5, -0.5), xlabel="communication that SSFusion saves (%)")
    axis.grid(axis="x")


FIG13 = Figure(
    "ssfusion.fig13",
    "Fig. 13: time of an iteration by part, 64 GPUs, and communication that SSFusion saves",
    _fig13,
    judge_cells,
    needs=simulated("breakdown"),
    said=_fig13_finding,
    notes=(
        "Communication is what computing does not hide. Diamonds: the reduction of communication that the paper "
        "prints. Bars and filled dots have every method at its best, open dots as the paper ran it; claims are held "
        "against those.",
        "No ratio is shown where the rival's communication takes less than two percent of its iteration: HiPress "
        "leaves tensors uncompressed where that is predicted to be faster, on ResNet-152 with 200 Gbit/s all of them.",
        f"{BY_QUALITY} {NO_PRINTED_TIMES}",
    ),
)
FIG13_HERE = Figure(
    "ssfusion.fig13_here",
    "Time breakdown of an iteration of small models on this machine",
    breakdown,
    about=("ssfusion.fig13",),
    needs={"experiment": "throughput", "calibration": ""},
    said=breakdown_finding,
    command="ssfx run experiment=throughput preset=short",
    notes=(
        "Bar: the run with the (lower) median iteration time. Its parts are medians over steps and need not add up to "
        "that time (tick). Dashed line: ideal, the iteration of one worker alone.",
    ),
)


# ---- Conditions: where the paper's orders hold, over bandwidth and the time of one compressor call -------------------

CHAIN = ("ssfusion_oi rule=paper", "ssfusion_o rule=paper", "ssfusion_naive rule=paper", "hipress rule=threshold")
THREE_RIVALS = ("hipress rule=threshold", "omgs rule=paper", "cupcake")
BEST, OURS = "ssfusion_oi", CHAIN[0]
DENSE, DENSE16 = "ddp", "ddp_fp16"
MARKS = {(57.0, 0.45): "Fig. 9, Fig. 2", (192.0, 0.85): "its cards, Table III"}
"""The paper's own numbers: the bandwidth that its Fig. 9 shows, and what its 200 Gbit/s cards can reach."""
ORDERINGS = 6
"""Neighbours in the chain O+I, O, naive, HiPress, and O+I before each rival."""


def _conditions(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return one panel a model: bandwidth across, time of a call upwards; colour counts the orderings that hold."""
    table = condition_lines(rows)
    if not table:
        return None
    models = grouped(table, lambda line: str(line["model"]))
    text = [
        "Colour: how many of 6 orderings hold with each method as the paper ran it (O+I > O > naive > HiPress; O+I "
        "before HiPress, OMGS and Cupcake), dark green all, white none. Numbers: SSFusion at its best (cheapest plan) "
        "over dense DDP with fp32 and with 16-bit messages; red: scheme=auto, not of the paper, over dense DDP with "
        "fp32. Boxes: the paper's own numbers.",
        "Simulated, 64 GPUs, density 0.01, one compressor call a tensor (calibration fitted); compute by data sheet.",
    ]
    height = 1.9 * -(-len(models) // 2) + 1.1
    canvas, grid = subplots(-(-len(models) // 2), 2, figsize=(7.6, height))
    for axis in grid.flat[len(models) :]:
        axis.set_visible(False)
    for axis, (model, lines) in zip(grid.flat, models.items(), strict=False):
        _condition_panel(axis, model, lines)
        axis.set_xlabel("bus bandwidth of a large all-reduce (Gbit/s)")
    canvas.supylabel("one compressor call (ms)")
    say_origin(canvas, caption_text(text, 7.4))
    return canvas, table


def _condition_panel(axis: Axes, model: str, table: list[dict[str, Any]]) -> None:
    rates = sorted({line["busbw_gbps"] for line in table})
    calls = sorted({line["call_ms"] for line in table})
    for line in table:
        x, y = rates.index(line["busbw_gbps"]), calls.index(line["call_ms"])
        share = line["orderings"] / ORDERINGS
        marked = (line["busbw_gbps"], line["call_ms"]) in MARKS
        look: dict[str, Any] = (
            {"edgecolor": "black", "linewidth": 1.6} if marked else {"edgecolor": "white", "linewidth": 0.5}
        )
        colour = (1 - 0.75 * share, 1 - 0.35 * share, 1 - 0.7 * share)
        axis.add_patch(plt.Rectangle((x - 0.47, y - 0.46), 0.94, 0.92, facecolor=colour, **look))
        over = [line["best_vs_dense"], line["best_vs_dense16"]]
        look = {"ha": "center", "va": "center", "fontsize": 6}
        auto = line["auto_vs_dense"]
        shift = 0.0 if auto is None else 0.12
        axis.text(x, y + shift, "\n".join(f"{100 * gain:+.0f} %" for gain in over), **look)
        if auto is not None:
            behind: dict[str, Any] = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.2}
            axis.text(x, y - 0.29, f"{100 * auto:+.0f} %", color=COLOUR, bbox=behind, **look)
    axis.set(xlim=(-0.5, len(rates) - 0.5), ylim=(-0.5, len(calls) - 0.5))
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(calls)), [f"{call:g}" for call in calls])
    axis.set_title(model)


def condition_lines(rows: list[Row]) -> list[dict[str, Any]]:
    """Return one line of the figure's table per model, bandwidth and time of a call."""
    found = [_condition_line(cell) for cell in cells(rows) if {DENSE, BEST, *CHAIN, *THREE_RIVALS} <= set(cell.rows)]
    return sorted(found, key=lambda line: (line["model"], line["busbw_gbps"], line["call_ms"]))


def _condition_line(cell: Cell) -> dict[str, Any]:
    speed: Mapping[str, float] = {name: cell.value(name, SPEED) for name in cell.rows}
    chain = [speed[a] > speed[b] for a, b in pairwise(CHAIN)]
    rivals = {name: speed[OURS] / speed[name] - 1 for name in THREE_RIVALS}
    dense16 = speed.get(DENSE16, speed[DENSE])
    auto = auto_of(cell)
    return {
        "model": cell.case.model,
        "busbw_gbps": float(cell.options["busbw_gbps"]),
        "call_ms": float(cell.options["compressor_call_ms"]),
        "orderings": sum(chain) + sum(gain > 0 for gain in rivals.values()),
        "variants_in_order": all(chain),
        **{f"oi_vs_{name.partition(' ')[0]}": gain for name, gain in rivals.items()},
        "oi_vs_o": speed[OURS] / speed[CHAIN[1]] - 1,
        "oi_vs_dense": speed[OURS] / speed[DENSE] - 1,
        "best_vs_dense": speed[BEST] / speed[DENSE] - 1,
        "best_vs_dense16": speed[BEST] / dense16 - 1,
        "auto_vs_dense": None if auto is None else speed[auto] / speed[DENSE] - 1,
    }


def _conditions_finding(rows: list[Row]) -> str:
    """Return where every ordering holds, where the best plan beats dense messages, and what holds at Fig. 9's rate."""
    table = condition_lines(rows)
    if not table:
        return "no setting with every method"
    whole = [line for line in table if line["orderings"] == ORDERINGS]
    wins = [line for line in table if line["best_vs_dense"] > 0.01]
    wins16 = [line for line in table if line["best_vs_dense16"] > 0.01]
    parts = [f"all {ORDERINGS} orderings hold in {len(whole)} of {len(table)} settings{_up_to(whole)}"]
    parts.append(f"SSFusion at its best beats dense fp32 in {len(wins)}{_up_to(wins)}, dense 16-bit in {len(wins16)}")
    for (rate, call), label in MARKS.items():
        here = [line for line in table if (line["busbw_gbps"], line["call_ms"]) == (rate, call)]
        if here:
            kept = ", ".join(f"{line['model']} {line['orderings']}" for line in here)
            parts.append(f"at {rate:g} Gbit/s and {call:g} ms ({label}) of {ORDERINGS} hold: {kept}")
    return "; ".join(parts)


def _up_to(table: list[dict[str, Any]]) -> str:
    return f", up to {max(line['busbw_gbps'] for line in table):g} Gbit/s" if table else ""


CONDITIONS = Figure(
    "ssfusion.conditions",
    "where the paper's orderings hold",
    _conditions,
    about=("ssfusion.fig11",),
    needs=simulated("conditions"),
    said=_conditions_finding,
    notes=(f"{BY_QUALITY} A call of its compressors takes as long as one of any other here.",),
)
