"""The generated part of docs/validation.md: what holds at each bandwidth, from the table below the figure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.common.pages.markdown import table

ORDERINGS = 6
FIG9, CARDS = 57.0, 192.0
"""Gbit/s that the paper's Fig. 9 shows, and that its network cards can reach."""
Line = dict[str, str]


def conditions_block(file: Path) -> str:
    """Return a paragraph and a table of what holds where; `file` is the CSV of the figure ssfusion.conditions."""
    with file.open(newline="") as text:
        lines = list(csv.DictReader(text))
    models = list(dict.fromkeys(line["model"] for line in lines))
    rates = sorted({float(line["busbw_gbps"]) for line in lines})
    header = ("Gbit/s", "model", f"orderings of {ORDERINGS}", "O+I over HiPress", "best over dense", "best over 16-bit")
    cells = [
        (f"{rate:g}", model, *_cells([one for one in lines if one["model"] == model and _rate(one) == rate]))
        for rate in rates
        for model in models
    ]
    return "\n\n".join((*_sentences(lines, rates), table(header, cells)))


def _sentences(lines: Sequence[Line], rates: Sequence[float]) -> Iterable[str]:
    every = [one for one in lines if int(one["orderings"]) == ORDERINGS]
    whole = [rate for rate in rates if all(one in every for one in lines if _rate(one) == rate)]
    some = max((_rate(one) for one in every), default=0.0)
    yield (
        f"**All {ORDERINGS} orderings hold** in {len(every)} of {len(lines)} settings, the fastest of them at {some:g} "
        f"Gbit/s; " + (f"at {_joined(whole)} Gbit/s whatever the model and the compressor." if whole else
                       "at no bandwidth for every model and compressor.")
    )  # fmt: skip
    for rate, what in (
        (FIG9, "the rate that the paper's Fig. 9 shows"),
        (CARDS, "what the network it names can reach"),
    ):
        found = [one for one in lines if _rate(one) == rate]
        if found:
            held = [int(one["orderings"]) for one in found]
            yield (
                f"**At {rate:g} Gbit/s**, {what}: {min(held)} to {max(held)} orderings hold. O+I as the paper ran it "
                f"is {_span(found, 'oi_vs_hipress')} against HiPress, "
                f"{_span(found, 'oi_vs_cupcake')} against Cupcake and {_span(found, 'oi_vs_dense')} against dense DDP; "
                f"SSFusion at its best {_span(found, 'best_vs_dense')} against dense DDP with fp32 messages and "
                f"{_span(found, 'best_vs_dense16')} with 16-bit messages."
            )


def _cells(lines: Sequence[Line]) -> tuple[str, ...]:
    held = sorted({int(one["orderings"]) for one in lines})
    count = f"{held[0]}" if len(held) == 1 else f"{held[0]} to {held[-1]}"
    return (count, *(_span(lines, key) for key in ("oi_vs_hipress", "best_vs_dense", "best_vs_dense16")))


def _span(lines: Sequence[Line], key: str) -> str:
    """Return the least and the largest gain in percent."""
    low, high = (f"{round(100 * bound(float(one[key]) for one in lines)):+d}" for bound in (min, max))
    return (f"{low} %" if low == high else f"{low} to {high} %").replace("+0", "0")


def _rate(line: Line) -> float:
    return float(line["busbw_gbps"])


def _joined(rates: Sequence[float]) -> str:
    return " and ".join(f"{rate:g}" for rate in rates)
