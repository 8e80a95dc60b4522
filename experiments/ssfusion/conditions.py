"""Conditions: where the orderings of SSFusion's paper hold, over bandwidth and the time of one compressor call."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.figures.auto import BY_QUALITY, COLOUR, auto_of
from experiments.common.figures.style import caption_text, save, style
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell, cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ssfusion.conditions"
TITLE = "where the paper's orderings hold"
CLAIMS = ("ssfusion.fig11",)
NEEDS = {"experiment": "conditions", "calibration": bool}
COMMAND = "ssfx run experiment=conditions"

METRIC = "throughput_samples_per_s"
CHAIN = ("ssfusion_oi rule=paper", "ssfusion_o rule=paper", "ssfusion_naive rule=paper", "hipress rule=threshold")
RIVALS = ("hipress rule=threshold", "omgs rule=paper", "cupcake")
BEST, OURS = "ssfusion_oi", CHAIN[0]
DENSE, DENSE16 = "ddp", "ddp_fp16"
MARKS = {(57.0, 0.45): "Fig. 9, Fig. 2", (192.0, 0.85): "its cards, Table III"}
"""The paper's own numbers: the bandwidth that its Fig. 9 shows, and what its 200 Gbit/s cards can reach."""
NOTES = (f"{BY_QUALITY} A call of its compressors takes as long as one of any other here.",)
ORDERINGS = 6
"""Neighbours in the chain O+I, O, naive, HiPress, and O+I before each rival."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a model: bandwidth across, time of a call upwards; colour counts the orderings that hold."""
    table = lines(rows)
    if not table:
        return []
    import matplotlib.pyplot as plt

    models = list(dict.fromkeys(line["model"] for line in table))
    text = [
        "Colour: how many of 6 orderings hold with each method as the paper ran it (O+I > O > naive > HiPress; O+I "
        "before HiPress, OMGS and Cupcake), dark green all, white none. Numbers: SSFusion at its best (guarded plan) "
        "over dense DDP with fp32 and with 16-bit messages; red: scheme=auto, not of the paper, over dense DDP with "
        "fp32. Boxes: the paper's own numbers.",
        "Simulated, 64 GPUs, density 0.01, one compressor call a tensor (calibration fitted); compute by data sheet.",
    ]
    with style():
        height = 1.9 * -(-len(models) // 2) + 1.1
        figure, grid = plt.subplots(-(-len(models) // 2), 2, figsize=(7.6, height), squeeze=False, layout="constrained")
        for axis in grid.flat[len(models) :]:
            axis.set_visible(False)
        for axis, model in zip(grid.flat, models, strict=False):
            _panel(axis, model, [line for line in table if line["model"] == model])
        figure.supxlabel("bus bandwidth of a large all-reduce (Gbit/s)")
        figure.supylabel("one compressor call (ms)")
        figure.suptitle(caption_text(text, 7.4), fontsize=6.5, ha="left", x=0.01)
        return save(figure, NAME, table, rows, out)


def _panel(axis: Axes, model: str, table: list[dict[str, Any]]) -> None:
    rates = sorted({line["busbw_gbps"] for line in table})
    calls = sorted({line["call_ms"] for line in table})
    for line in table:
        x, y = rates.index(line["busbw_gbps"]), calls.index(line["call_ms"])
        share = line["orderings"] / ORDERINGS
        edge = "black" if (line["busbw_gbps"], line["call_ms"]) in MARKS else "white"
        axis.add_patch(_square(x, y, (1 - 0.75 * share, 1 - 0.35 * share, 1 - 0.7 * share), edge))
        over = [line["best_vs_dense"], line["best_vs_dense16"]]
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6}
        auto = line["auto_vs_dense"]
        shift = 0.0 if auto is None else 0.12
        axis.text(x, y + shift, "\n".join(f"{100 * gain:+.0f} %" for gain in over), **look)
        if auto is not None:
            behind: dict[str, Any] = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.2}
            axis.text(x, y - 0.29, f"{100 * auto:+.0f} %", color=COLOUR, bbox=behind, **look)
    axis.set_xlim(-0.5, len(rates) - 0.5)
    axis.set_ylim(-0.5, len(calls) - 0.5)
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axis.set_yticks(range(len(calls)), [f"{call:g}" for call in calls])
    axis.set_title(model)


def _square(x: int, y: int, colour: tuple[float, float, float], edge: str) -> Any:
    from matplotlib.patches import Rectangle

    wide = 1.6 if edge == "black" else 0.5
    return Rectangle((x - 0.47, y - 0.46), 0.94, 0.92, facecolor=colour, edgecolor=edge, linewidth=wide)


def lines(rows: list[Row]) -> list[dict[str, Any]]:
    """Return one line of the figure's table per model, bandwidth and time of a call."""
    found = [_line(cell) for cell in cells(rows) if {DENSE, BEST, *CHAIN, *RIVALS} <= set(cell.rows)]
    return sorted(found, key=lambda line: (line["model"], line["busbw_gbps"], line["call_ms"]))


def _line(cell: Cell) -> dict[str, Any]:
    speed: Mapping[str, float] = {name: cell.value(name, METRIC) for name in cell.rows}
    chain = [speed[a] > speed[b] for a, b in pairwise(CHAIN)]
    rivals = {name: speed[OURS] / speed[name] - 1 for name in RIVALS}
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


def finding(rows: list[Row]) -> str:
    """Return where every ordering holds, where the best plan beats dense messages, and what holds at Fig. 9's rate."""
    table = lines(rows)
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
