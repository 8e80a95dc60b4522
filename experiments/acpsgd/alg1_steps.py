"""ACP-SGD Algorithm 1: products, orthogonalisations and all-reduces of one step, beside those of Power-SGD."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, says
from experiments.common.evaluation.operators import orthogonalisations, products
from experiments.common.evaluation.pages import draw_claims
from ssfx.compressors import build
from ssfx.core.rows import Row

NAME = "acpsgd.alg1"
TITLE = "One step of Power-SGD and of ACP-SGD for an n x m matrix at rank r"
COMMAND = f"ssfx figures {NAME}"

SHAPE, RANK = (768, 3072), 32
"""The matrix that formulas are tried on: a feed-forward layer of BERT-Base."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the counts of the algorithm beside those of our compressors."""
    origin = "Counted from the compressors of ssfx (operators of one call, planned message sizes); no run."
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every count and formula."""
    n, m = SHAPE
    power, turns = (build(f"{name}(min_compression_rate=0,rank={RANK})") for name in ("powersgd", "acpsgd"))
    p, q = turns.cycle((SHAPE,))
    both = power.layout_of((SHAPE,), 1.0)
    sent = both.first + both.values
    found = [
        says(
            "acpsgd.ii.lowrank_ratio", n * m / sent == n * m / (n * RANK + m * RANK),
            f"{n * m / sent:.4g}x for {n} x {m} at rank {RANK}",
        ),
        says(
            "acpsgd.iv.comp_cost", products("acpsgd") == orthogonalisations("acpsgd") == 1,
            "one product and one basis, of n and of m rows in turns",
        ),
        says("acpsgd.iv.comm_cost", (p + q) / 2 == (n + m) / 2 * RANK, f"{(p + q) / 2:,.0f} elements a step"),
        held(
            "acpsgd.iv.half", (p + q) / 2 / sent, tolerance=0.0,
            reason="exact for matrices; vectors travel whole with both methods",
        ),
    ]  # fmt: skip
    for key, compressor in (("power", power), ("acp", turns)):
        found += [
            held(f"acpsgd.iv.ops.{key}.matmul", products(compressor.name), tolerance=0.0),
            held(f"acpsgd.iv.ops.{key}.orth", orthogonalisations(compressor.name), tolerance=0.0),
            held(f"acpsgd.iv.ops.{key}.ar", compressor.rounds, tolerance=0.0),
        ]
    return complete(NAME, found, COMMAND)
