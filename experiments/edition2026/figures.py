"""The map of 2026: how many more steps compression may cost and still pay, by GPU and by bandwidth of the network.

Beside it, in which world a network is: that of exchanges after every step, or that of rounds.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.common.evaluation.rounds_by_rate import WORLDS, Place
from experiments.common.evaluation.rounds_by_rate import places as by_rate
from experiments.common.evaluation.set_ups import CheckedPlace, counted, map_lines, places
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import Axes, Picture, Table, caption_text, frame, plt, subplots
from ssfx.core.rows import Row

GPUS = {
    ("v100", "fp32"): "V100, fp32 (2017)",
    ("v100", "fp16"): "V100, fp16 (2017)",
    ("a100", "bf16"): "A100 (2020)",
    ("a10g", "bf16"): "A10G (2021)",
    ("l4", "bf16"): "L4 (2023)",
    ("l40s", "bf16"): "L40S (2023)",
    ("rtx4090", "bf16"): "RTX 4090 (2022)",
    ("rtx5090", "bf16"): "RTX 5090 (2025)",
    ("h100", "bf16"): "H100 (2022)",
    ("mi300x", "bf16"): "MI300X (2023)",
    ("h200", "bf16"): "H200 (2024)",
    ("b200", "bf16"): "B200 (2024)",
}
"""Rows from below: first of the data center and of workstations, each by what it computes; all but V100 in bf16."""
TCP, RDMA = "GPUs over TCP", "GPUs over RDMA"
STEPS = (1.0, 1.05, 1.25, 2.0, 4.0)
COLOURS = ("#f5f5f5", "#dcebd5", "#a9d29b", "#5fae5b", "#217a3c")
"""Of multiples from each of STEPS on."""
HATCHES = ("#b9b9b9", "#93ad89", "#6d9a60", "#d6ead3", "#9cc6a5")
"""Colours of hatches that are seen on each of COLOURS."""


def _map(figure: Figure, rows: list[Row]) -> Picture | None:
    """Return the map, a block for each kind of network: what compression affords, and how many models surely win."""
    table = lines(places(rows)[0])
    if not table:
        return None
    ranges = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(STEPS)]
    won = sum(bool(line["wins"]) for line in table)
    text = [
        "Colour and factor: how many times the steps of dense training compression may need and still pay; the best "
        "dense step, in 16 bits too, over the shortest compressed one, median over models "
        f"({', '.join(ranges)}, more). Fractions: models whose step is shorter beyond the validated error, of those "
        "that fit; hatched: at most half of them, or never checked. r, p: models of which runs here, or others, have "
        "what a shorter step costs in quality; without, it is unknown. Black frames: the time to quality is surely "
        f"shorter for a model ({won} of {len(table)}). Eight nodes of eight GPUs; one network card a node, or eight.",
        "Simulated (nominal costs, nominal profiles); no GPU has run any of it.",
    ]
    networks = [one for one in (TCP, RDMA) if any(line["network"] == one for line in table)]
    columns = {one: sorted({line["gbps"] for line in table if line["network"] == one}) for one in networks}
    gpus = [label for label in GPUS.values() if any(line["gpu"] == label for line in table)]
    canvas, axes = subplots(
        1, len(networks), figsize=(7.2, 0.32 * len(gpus) + 1.25), width_ratios=[len(columns[one]) for one in networks]
    )
    for axis, network in zip(axes.flat, networks, strict=True):
        _block(axis, network, columns[network], gpus, [line for line in table if line["network"] == network])
    say_origin(canvas, caption_text(text, canvas.get_figwidth()))
    return canvas, table


def _block(axis: Axes, network: str, rates: Sequence[float], gpus: Sequence[str], table: list[dict[str, Any]]) -> None:
    for line in table:
        x, y = rates.index(line["gbps"]), gpus.index(line["gpu"])
        degree = sum(line["affords"] >= step for step in STEPS) - 1
        colour = COLOURS[degree]
        dark = line["affords"] >= STEPS[3]
        hatch = "" if 2 * line["shorter"] > line["models"] else "////"
        axis.add_patch(
            plt.Rectangle(
                (x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, edgecolor=HATCHES[degree], hatch=hatch, linewidth=0
            )
        )
        if line["wins"]:
            axis.add_patch(plt.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, fill=False, edgecolor="black", linewidth=1))
        marks = {"r": line["recorded"], "p": line["published"]}
        evidence = "".join(f"{mark}{count}" for mark, count in marks.items() if count)
        behind = {"facecolor": colour, "linewidth": 0, "pad": 0.8}
        said = (
            f"{line['affords']:{'.0f' if line['affords'] >= 10 else '.2f'}}x" if line["affords"] >= 1.005 else "dense"
        )
        axis.text(
            x,
            y,
            f"{said}\n{line['shorter']}/{line['models']} {evidence}",
            ha="center",
            va="center",
            fontsize=5.6,
            linespacing=1.0,
            color="white" if dark else "black",
            bbox=behind,
        )
    axis.set(xlim=(-0.5, len(rates) - 0.5), ylim=(-0.5, len(gpus) - 0.5))
    axis.set_xticks(range(len(rates)), [f"{rate:.3g}" for rate in rates])
    axis.set_yticks(range(len(gpus)), gpus if network == TCP else [""] * len(gpus))
    axis.set_xlabel("Gbit/s per GPU, line rate")
    axis.set_title(f"{network.removeprefix('GPUs over ')} between nodes")


def lines(found: Sequence[CheckedPlace]) -> list[dict[str, Any]]:
    """Return a line of the figure's table for each GPU, network and rate."""
    named = [(GPUS.get((line["device"], line["precision"])), line) for line in map_lines(found)]
    return [{"gpu": gpu, **line} for gpu, line in named if gpu]


def _map_finding(rows: list[Row]) -> str:
    """Return the sentence, with its counts and its bandwidth."""
    found, too_large = places(rows)
    return f"{counted(found).sentence}; {too_large} places where dense training does not fit are not counted"


MAP = Figure(
    "edition2026.map",
    "How many more steps compression may cost in 2026 and still pay, by GPU and by bandwidth",
    _map,
    about=(),
    needs={"experiment": "edition2026", "calibration": bool, "sharding": bool},
    said=_map_finding,
    notes=("No paper's figure: what docs/edition2026.md says rests on it.",),
)


WORLD_COLOURS = ("#555555", "#b07aa1", "#e15759", "#f28e2b", "#4e79a7", "#59a14f")
"""Of methods, in the order of their places."""


def _worlds(figure: Figure, rows: list[Row]) -> Picture:
    """Return a panel for each world: a line where quality is dense, a band where it is published, dots without it."""
    found = list(by_rate())
    canvas, axes = subplots(1, len(WORLDS), figsize=(7.2, 2.9), sharey=True)
    for axis, world in zip(axes.flat, WORLDS, strict=True):
        here = [one for one in found if one.world == world]
        for colour, method in zip(WORLD_COLOURS, dict.fromkeys(one.method for one in here), strict=True):
            _method(axis, colour, [one for one in here if one.method == method])
        axis.set(xscale="log", yscale="log", title=world, xticks=(0.1, 1, 10, 100), yticks=(1, 10, 100))
        axis.set_ylim(0.9, 200)
        axis.minorticks_off()
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_formatter("{x:g}")
    axes.flat[0].set_ylabel("time to quality over that\nwithout a network")
    axes.flat[1].set_xlabel("Gbit/s per GPU")
    said = (
        "GPT-2 large on H100, simulated (nominal costs); no GPU has run any of it. Line: quality of dense training.\n"
        "Hatched: steps times what others published of such quality. Dotted: nobody knows it, a step alone."
    )
    frame(canvas, figure.title, said, ncols=6)
    return canvas, world_lines(found)


def _method(axis: Axes, colour: str, line: Sequence[Place]) -> None:
    """Draw one method over the bandwidths, by its evidence."""
    x = [one.gbps for one in line]
    low, high = [one.times(one.low) for one in line], [one.times(one.high) for one in line]
    kind = line[0].evidence
    label = line[0].method
    if kind == "published":
        axis.fill_between(
            x, low, high, facecolor=f"{colour}40", edgecolor=colour, hatch="////", linewidth=0.8, label=label
        )
    else:
        axis.plot(x, low, color=colour, linestyle="-" if kind == "dense" else ":", linewidth=1.4, label=label)


def world_lines(found: Sequence[Place]) -> Table:
    """Return a line of the figure's table for each method, world and rate."""
    return [
        {
            "world": one.world,
            "gbps_per_gpu": one.gbps,
            "method": one.method,
            "step_ms": round(1e3 * one.step_s, 2),
            "evidence": one.evidence,
            "steps_low": one.low,
            "steps_high": one.high,
            "times_low": round(one.times(one.low), 3),
            "times_high": round(one.times(one.high), 3),
        }
        for one in found
    ]


def _worlds_finding(rows: list[Row]) -> str:
    """Return up to which of the drawn rates DiLoCo every 32 steps is surely sooner than 16 bits, by world."""
    found = {(one.world, one.gbps, one.method): one for one in by_rate()}
    up_to = {
        world: max(
            (
                gbps
                for (where, gbps, method), one in found.items()
                if where == world
                and method == "diloco every 32"
                and one.times(one.high) < found[where, gbps, "16 bits every step"].times(1.0)
            ),
            default=0.0,
        )
        for world in WORLDS
    }
    told = ", ".join(f"{rate:g} ({world})" for world, rate in up_to.items())
    return (
        f"DiLoCo every 32 steps is sooner than 16 bits of every step up to {told} Gbit/s per GPU, by published quality"
    )


WORLDS_FIGURE = Figure(
    "edition2026.worlds",
    "Time to quality by bandwidth: exchanges of every step, and rounds of local updates",
    _worlds,
    about=(),
    said=_worlds_finding,
    notes=(
        "No paper's figure: docs/local_updates.md points at it. GPT-2 large in bf16 on H100; sites are 20 ms apart. "
        "Line: quality of dense training. Hatched: no run of ours holds, a step times what others published (arXiv "
        "2503.09799 for DiLoCo at 30 steps, 2410.15526 for 4 bits). Dotted: nothing is known, a step alone.",
    ),
)
