"""ACP-SGD Table II: what four methods compute and send, held against what our compressors and collectives count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete, number, says
from experiments.common.evaluation.low_rank import of
from experiments.common.evaluation.operators import bytes_per_element
from experiments.common.figures.tables import draw_table
from ssfx.collectives.primitives import traffic
from ssfx.compressors import build
from ssfx.core.rows import Row

NAME = "acpsgd.table2"
TITLE = "What one worker sends in a step (elements of 32 bits)"
COMMAND = f"ssfx figures {NAME}"

MODEL = "BERT-Base"
POWER = "powersgd(min_compression_rate=0,rank={})"
CLOSE = 1e-3
"""Relative difference that rounding to whole bytes and chunks may make."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what is counted beside what the formulas give, for one model on the paper's 32 GPUs."""
    notes = {one.claim.rpartition(".")[0].rpartition(".")[2]: one for one in judge(rows) if one.claim.endswith(".comp")}
    table = [
        {
            "method": method, "formula": formula, "sent": counted_elements, "paper": by_formula,
            "compress": notes[key].ours if key in notes else "nothing to compress",
        }
        for method, key, formula, counted_elements, by_formula in sent()
    ]  # fmt: skip
    columns = {
        "method": "method", "formula": "paper: formula", "paper": "paper: for\n" + MODEL, "sent": "ssfx:\ncounted",
        "compress": "ssfx: compressing",
    }  # fmt: skip
    return draw_table(NAME, TITLE, columns, table, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every formula: counted for one model and 32 workers, and by doubling what it depends on.

    What is sent restates: our exchanges are declared by the same formulas.
    """
    found = []
    for _, key, _, here, paper in sent():
        found.append(
            says(f"acpsgd.table2.{key}", abs(here / paper - 1) < CLOSE, f"{here:.4g} elements sent", source="restated")
        )
    moved = bytes_per_element("topk")
    found += [
        says("acpsgd.table2.sign.comp", growth("signsgd", 1, 1) == 2, "twice the elements are twice the work",
             source="restated"),
        says(
            "acpsgd.table2.power.comp",
            growth(POWER, 8, 8) == growth(POWER, 8, 16) == 2,
            "twice the elements or twice the rank are twice the work",
            source="restated",
        ),
        absent(
            "acpsgd.table2.topk.comp", "k log N counts the steps of a heap; ours selects by histogram and reads all N",
            "not comparable", f"{moved:g} bytes moved for each of the N elements",
        ),
    ]  # fmt: skip
    return complete(NAME, found, COMMAND)


def sent() -> list[tuple[str, str, str, float, float]]:
    """Return method, its key, its formula, and elements sent as counted and by the formula."""
    p, numel = int(number("acpsgd.setup.gpus")), of(MODEL).numel
    factored = sum(of(MODEL).p) + sum(of(MODEL).q) - of(MODEL).vectors
    kept = build("topk").layout(numel, claims_by_id()["acpsgd.intro.topk_ratio"].conditions["density"])

    def summed(elements: int) -> float:
        return traffic("all_reduce", 4 * elements, p, item_bytes=4).sent_bytes / 4

    def gathered(nbytes: int) -> float:
        return traffic("all_gather", nbytes, p).sent_bytes / 4

    signs = build("signsgd").layout(numel, 1.0).nbytes
    return [
        ("S-SGD", "ssgd", "2 (p-1)/p N", summed(numel), 2 * (p - 1) / p * numel),
        ("Sign-SGD", "sign", "(p-1) N/32", gathered(signs), (p - 1) * numel / 32),
        ("Top-k SGD", "topk", "2 (p-1) k", gathered(kept.nbytes), (p - 1) * 2 * kept.values),
        ("Power-SGD", "power", "2 (p-1)/p Nc", summed(factored), 2 * (p - 1) / p * factored),
    ]


def growth(spec: str, rank: int, other_rank: int) -> float:
    """Return how the work of a compressor grows when a square matrix, or where they differ its rank, is doubled."""
    once = build(spec.format(rank)).work([(512, 512)])
    again = build(spec.format(other_rank)).work([(512, 1024 if rank == other_rank else 512)])
    return again / once
