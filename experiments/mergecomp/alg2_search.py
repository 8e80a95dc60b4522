"""MergeComp Algorithm 2: how many groupings the search tries, and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, says
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.mergecomp_search import SearchResult, algorithm_2, search_last_cut

NAME = "mergecomp.alg2"
TITLE = "Search over the number of groups"
COMMAND = f"ssfx figures {NAME}"

ALPHA = 0.02


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what was tried."""
    origin = "Computed by ssfx: the search of scheme mergecomp on a made-up valley of times; no run."
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the number of probes and on the stopping rule."""
    ends_s = (1.0, 0.9, 0.89, 0.5)
    chosen = algorithm_2((SearchResult(tuple(range(i)), end_s) for i, end_s in enumerate(ends_s)), ALPHA)
    stops = chosen.total_s == ends_s[2]
    return complete(
        NAME,
        [
            held("mergecomp.alg2.iters", max(probes(optimum) for optimum in (1, 100, 157, 312))),
            says("mergecomp.alg2.params", stops, f"stops at the first gain below alpha = {ALPHA:g}", source="restated"),
        ],
        COMMAND,
    )


def probes(optimum: int) -> int:
    """Return how many two-group splits of ResNet101 the search tries until it finds the best one."""
    tensors, tried = len(model_work("resnet101").tensors), 0

    def end_s(cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        nonlocal tried
        tried += 1
        seconds: NDArray[np.float64] = 1.0 + np.abs(cuts - optimum) / tensors
        return seconds

    cut, _ = search_last_cut(end_s, np.array([1]), np.array([tensors - 1]))
    assert int(cut[0]) == optimum
    return tried
