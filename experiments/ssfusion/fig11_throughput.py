"""SSFusion Fig. 11 (Experiment 1): its gain in throughput over six rivals on 16, 32 and 64 GPUs, simulated."""

from __future__ import annotations

from pathlib import Path

from experiments.common.claims.simulated import judged
from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.auto import BY_QUALITY, NO_PRINTED_TIMES
from experiments.common.figures.gains import Gains
from experiments.common.figures.gains import finding as finding
from experiments.common.figures.paper_words import RIVALS
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import cells

NAME = "ssfusion.fig11"
TITLE = "Fig. 11: throughput of SSFusion over that of each rival, 200 Gbit/s between nodes"
CLAIMS = ("ssfusion.fig11",)
NEEDS = {"experiment": "throughput", "calibration": bool}
COMMAND = "ssfx run experiment=throughput cluster=16gpu,32gpu,64gpu cluster.calibration=nominal,published"
NOTES = (
    "Dots: the throughput of SSFusion over that of the rival, less one; filled with every method at its best, open as "
    "the paper ran them (HiPress by size, Espresso's search as printed, OMGS's two messages, SSFusion by Eq. 2); "
    "claims are held against the latter. Grey: the range that the paper prints for this rival.",
    f"{BY_QUALITY} {NO_PRINTED_TIMES}",
    "The absolute throughput of every scheme is in the CSV.",
)

GAINS = Gains(NAME, TITLE, "resnet152 vit_large bert_large gpt2_large", "rivals")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write a panel per model and calibration, a line per rival, a dot per cluster size."""
    return GAINS.draw(rows, out)


def judge(rows: list[Row]) -> list[Verdict]:
    """Return the verdicts on the number of rivals and on gains over them."""
    run = [rival for rival in RIVALS if any(rival in cell.rows for cell in cells(rows))]
    number = compared("ssfusion.setup.baselines", 6, len(run), decimals=0, unit="rivals", command=COMMAND)
    return [number, *judged(NAME, rows, COMMAND)]
