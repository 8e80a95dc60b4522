"""S2 Reducer Fig. 1: a ring all-reduce adds parts up, an all-gather of sparse gradients puts them in a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, says
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, save, style
from ssfx.collectives.primitives import split_sizes, traffic
from ssfx.core.rows import Row

NAME = "s2reducer.fig1"
TITLE = "How all-reduce and sparse all-gather move gradients"
COMMAND = f"ssfx figures {NAME}"

WORKERS = 4
SHADES = ("#deebf7", "#9ecae1", "#4292c6", "#08519c")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write how many workers' values are in each part after every step of the ring, and what a gather leaves."""
    import matplotlib.pyplot as plt

    table: list[dict[str, object]] = []
    states = ring()
    with style():
        figure, axes = plt.subplots(1, len(states) + 1, figsize=(2 * COLUMN_IN, 2.0), layout="constrained", sharey=True)
        for step, (axis, state) in enumerate(zip(axes, states, strict=False)):
            for worker, parts in enumerate(state):
                for part, count in enumerate(parts):
                    axis.barh(worker, 0.92, 0.8, left=part, color=SHADES[count - 1])
                    colour = "white" if count > 2 else "black"
                    axis.text(part + 0.46, worker, count, ha="center", va="center", color=colour)
                    table.append({"panel": f"ring step {step}", "worker": worker, "part": part, "summed": count})
            axis.set_title("start" if step == 0 else f"step {step}", loc="left", fontweight="bold")
            axis.set_xticks([])
        last = axes[-1]
        for worker in range(WORKERS):
            for part in range(WORKERS):
                last.barh(worker, 0.92, 0.8, left=part, color=SHADES[0])
                last.text(part + 0.46, worker, f"g{part}", ha="center", va="center")
                table.append({"panel": "all-gather", "worker": worker, "part": part, "summed": 1})
        last.set_title("all-gather", loc="left", fontweight="bold")
        last.set_xticks([])
        axes[0].set_yticks(range(WORKERS), [f"worker {worker}" for worker in range(WORKERS)])
        axes[0].set_ylim(WORKERS - 0.5, -0.5)
        origin = (
            "Number: workers whose values are summed in a part of the vector, while a ring adds up; right: the four "
            "messages that every worker holds after an all-gather. No run."
        )
        figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
        return save(figure, NAME, table, rows, out)


def ring() -> list[list[list[int]]]:
    """Return, before and after every step of the adding half, worker -> part -> how many workers are summed there."""
    state = [[1] * WORKERS for _ in range(WORKERS)]
    states = [[list(parts) for parts in state]]
    for step in range(WORKERS - 1):
        sent = [(worker, (worker - step) % WORKERS) for worker in range(WORKERS)]
        moved = [(worker, part, state[worker][part]) for worker, part in sent]
        for worker, part, count in moved:
            state[(worker + 1) % WORKERS][part] += count
        states.append([list(parts) for parts in state])
    return states


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return the verdict on the number of parts and steps, by the convention by which all traffic is counted here."""
    last = ring()[-1]
    complete_parts = sum(WORKERS in (last[worker][part] for worker in range(WORKERS)) for part in range(WORKERS))
    steps = traffic("all_reduce", 4 * WORKERS, WORKERS, item_bytes=4).messages // 2
    parts = len(split_sizes(WORKERS, WORKERS))
    holds = steps == WORKERS - 1 == len(ring()) - 1 and parts == complete_parts == WORKERS
    ours = f"{parts} parts, {steps} steps for {WORKERS} workers"
    return complete(NAME, [says("s2reducer.ii.ring_parts", holds, ours, source="restated")], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return what the ring does."""
    return judge(rows)[0].ours
