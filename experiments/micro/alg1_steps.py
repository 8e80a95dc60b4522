"""MiCRO Algorithm 1: disjoint parts that rotate, a selection in which all workers take part, a steered threshold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, says
from experiments.common.evaluation.pages import draw_claims
from experiments.common.evaluation.selection_example import run
from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "micro.alg1"
TITLE = "What holds in every step of MiCRO"
COMMAND = f"ssfx figures {NAME}"

MODEL = "resnet18_cifar10"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what was tried for every statement."""
    origin = (
        "Computed by ssfx: the partition and threshold rules of its compressor on made-up gradients; no training run."
    )
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every property of the algorithm."""
    workers = int(claims_by_id()["micro.micro.search_range"].conditions["n"])
    numel = model_work(MODEL).numel
    starts = split_starts(numel, workers)
    largest = max(b - a for a, b in pairwise(starts))
    tried = run("micro")
    rises, falls = threshold_scale(2, 1) > 1, threshold_scale(1, 2) < 1
    return complete(
        NAME,
        [
            held("micro.micro.search_range", largest / numel, tolerance=1 / numel * workers),
            says("micro.micro.no_buildup", tried.overlap == 0, f"{tried.overlap:g} elements selected twice"),
            held("micro.micro.coverage", coverage(workers), tolerance=0.0),
            says("micro.micro.invariance", same_set(), "the same indices with and without parts"),
            says(
                "micro.micro.k_error", "partly" if rises and falls else "disagrees",
                f"{tried.ratio:.3f} of the wanted count",
                "steered by the sum over workers, as the authors' code does; the text has one worker's (MI-01)",
            ),
            held(
                "micro.micro.all_workers", tried.deciding, tolerance=0.0,
                reason="a worker that finds nothing sends one element, as in the authors' code", source="restated",
            ),
        ],
        COMMAND,
    )  # fmt: skip


def coverage(workers: int) -> int:
    """Return in how many steps every worker sees every part; parts are disjoint in each of them."""
    seen: list[set[int]] = [set() for _ in range(workers)]
    for step in range(2 * workers):
        parts = [partition_of(rank, step, workers) for rank in range(workers)]
        assert sorted(parts) == list(range(workers))
        for own, part in zip(seen, parts, strict=True):
            own.add(part)
        if all(len(own) == workers for own in seen):
            return step + 1
    return 2 * workers


@cache
def same_set() -> bool:
    """Return whether filtering part by part selects what filtering the whole vector does."""
    vector = np.abs(np.random.default_rng(0).standard_normal(10_007))
    starts = split_starts(len(vector), 16)
    parts = [a + np.flatnonzero(vector[a:b] > 2.0) for a, b in pairwise(starts)]
    return bool(np.array_equal(np.concatenate(parts), np.flatnonzero(vector > 2.0)))
