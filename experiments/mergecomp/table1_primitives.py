"""MergeComp Table 1: which compressors' messages can be summed by an all-reduce, and which must be gathered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict, counted
from experiments.common.evaluation.judging import complete, held
from experiments.common.figures.tables import draw_table
from ssfx.compressors import build
from ssfx.compressors.memories import memories
from ssfx.core.errors import SsfxError
from ssfx.core.rows import Row
from ssfx.schemes import schemes

NAME = "mergecomp.table1"
TITLE = "Collective of each compressor"
COMMAND = f"ssfx figures {NAME}"

COMPRESSORS = {
    "FP16": ("fp16", None), "DGC": ("dgc", None), "Top-k": ("topk", None), "Rand-k": ("randomk", None),
    "EFSignSGD": ("ef_signsgd", None), "QSGD": ("qsgd", None), "SignSGD": ("signsgd", None),
    "OneBit": ("onebit", None), "SigNUM": ("signsgd", "signum"),
}  # fmt: skip
"""Compressor of the paper -> ours, and the memory that makes it what it is."""
PAPER = {"FP16": "all-reduce (NCCL)"}
GATHERED = "all-gather (MPI)"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one line per compressor: the paper's collective, and what ours allows."""
    table = [{"compressor": "FP32", "paper": PAPER["FP16"], "here": "all-reduce", "as": "ddp"}]
    for name, (spec, memory) in COMPRESSORS.items():
        additive = build(spec).additive
        table.append(
            {
                "compressor": name,
                "paper": PAPER.get(name, GATHERED),
                "here": "all-reduce" if additive else "all-gather",
                "as": f"{spec}, memory {memory}" if memory else spec,
            }
        )
    columns = {"compressor": "compressor", "paper": "paper", "here": "ssfx", "as": "called here"}
    origin = "What the compressors of ssfx declare about their messages; no run."
    return draw_table(NAME, TITLE, columns, table, out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return the verdict on the number of compressors that MergeComp takes."""
    return complete(NAME, [held("mergecomp.headline.nine", len(taken()), tolerance=0.0, source="restated")], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return which compressors are there."""
    return f"{len(taken())} compressors of the paper can be merged here ({counted(judge(rows))})"


def taken() -> list[str]:
    """Return the paper's compressors that scheme=mergecomp takes here, with their memories."""
    found = []
    for name, (spec, memory) in COMPRESSORS.items():
        try:
            schemes["mergecomp"].options({"compressor": spec})
            if memory is not None:
                memories.build(memory)
        except SsfxError:
            continue
        found.append(name)
    return found
