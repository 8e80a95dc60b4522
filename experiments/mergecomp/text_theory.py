"""MergeComp section 4: the size of the search space, costs that depend on the number of groups alone, complexity."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import comb, log2
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import PROOF, absent, complete, says
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "mergecomp.text.theory"
TITLE = "Lemmas and theorems of MergeComp, tried on small numbers"
COMMAND = f"ssfx figures {NAME}"

TENSORS = 12
"""Of the example on which every grouping is listed."""
GROUPS = (3, 4)
"""Numbers of groups for which the bound on the search is tried; with two groups both sides are log N."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what was tried for every statement."""
    return draw_claims(NAME, TITLE, judge(rows), out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every lemma and theorem."""
    found = groupings(TENSORS)
    costs = {count: {cost(cuts) for cuts in found if len(cuts) == count - 1} for count in range(1, TENSORS + 1)}
    alike = all(len(one) == 1 for one in costs.values())
    rising = [next(iter(costs[count])) for count in sorted(costs)]
    tensors = len(model_work("resnet101").tensors)
    smaller = all(
        comb(tensors - 2, y - 2) * log2(tensors) < tensors ** (y - 2) * log2(tensors) for y in GROUPS
    )  # fmt: skip
    return complete(
        NAME,
        [
            says("mergecomp.lemma1", len(found) == 2 ** (TENSORS - 1), f"{len(found)} groupings of {TENSORS} tensors"),
            says(
                "mergecomp.lemma2", alike and rising == sorted(rising),
                f"one cost for each number of groups, rising, in all {len(found)} groupings",
            ),
            absent("mergecomp.theorem1", PROOF),
            absent("mergecomp.theorem2", PROOF),
            says(
                "mergecomp.theorem3", smaller, f"holds for {tensors} tensors and Y = 3, 4",
                "with Y = 2 both sides are log N: at most, not below",
            ),
        ],
        COMMAND,
    )  # fmt: skip


def groupings(tensors: int) -> list[tuple[int, ...]]:
    """Return the cuts of every division of so many tensors into contiguous groups."""
    return [cuts for count in range(tensors) for cuts in combinations(range(1, tensors), count)]


def cost(cuts: tuple[int, ...]) -> float:
    """Return compression and communication of a grouping whose calls cost 3 and whose elements cost 1 each, linearly.

    Tensor i has i + 1 elements, so that groups differ in size.
    """
    ends = (0, *cuts, TENSORS)
    sizes = [sum(range(a + 1, b + 1)) for a, b in pairwise(ends)]
    return sum(3 + size for size in sizes)
