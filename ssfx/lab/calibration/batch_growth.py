"""How extra steps over dense training grow with the batch: one power for all that keeps much of a gradient back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean

from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import (
    Pair,
    batch_of,
    dense_runs,
    extra_steps,
    law_of,
    long_rows,
    method,
    place,
    setting_of,
)
from ssfx.schemes.search.auto_steps import MOST_UNREACHED


@dataclass(frozen=True)
class BatchGrowth:
    """Extra steps of error feedback grow with batch ** exponent; low .. high are those of each method and task alone.

    `batch`: the smallest and the largest of all ranks together, in tokens or images; `runs`: how many of them; `tasks`:
    of how many networks with an optimizer.
    """

    exponent: float
    low: float
    high: float
    batch: tuple[int, int]
    runs: int
    tasks: int


SHOWN_EXTRA = 0.05
"""Extra steps, as a share, below which seeds differ more than batches."""


def batch_growth(rows: Iterable[Row]) -> BatchGrowth | None:
    """Return how extra steps of what feeds errors back grow with the batch of all ranks, however many those are.

    A gradient of more data has less noise of its own that the error of a compressor could hide behind. One exponent by
    least squares of log(extra steps) on log(batch), with a level of its own for each method and task.
    """
    groups = extra_by_batch(rows)
    if not groups:
        return None
    each = [_products([(log(batch_of(row)), log(share)) for row, share in runs]) for runs in groups.values()]
    alone = [product / square for product, square in each]
    batches = [batch_of(row) for runs in groups.values() for row, _ in runs]
    return BatchGrowth(
        sum(product for product, _ in each) / sum(square for _, square in each),
        min(alone),
        max(alone),
        (min(batches), max(batches)),
        len(batches),
        len({task for task, _ in groups}),
    )


def extra_by_batch(rows: Iterable[Row]) -> dict[tuple[str, str], list[tuple[Row, float]]]:
    """Return runs with their extra steps, as a share, by task and method; only of those that have several batches.

    Runs count that feed errors back, reached half of the levels, and need more than SHOWN_EXTRA.
    """
    long = long_rows(rows)
    dense = dense_runs(long)
    groups: dict[tuple[str, str], list[tuple[Row, float]]] = {}
    for row in long:
        if grows([row]) and place(row) in dense:
            found = extra_steps(dense[place(row)], row)
            if len(found.bounds) > MOST_UNREACHED * (len(found.bounds) + len(found.pairs)):
                continue
            delay, factor = law_of([found])
            if (share := delay / row.case.steps + factor) > SHOWN_EXTRA:
                groups.setdefault((setting_of(row), method(row)), []).append((row, share))
    return {at: runs for at, runs in groups.items() if len({batch_of(row) for row, _ in runs}) > 1}


LITTLE = 0.25
"""Share of a gradient's norm that a step may keep back before its cost grows with the batch. Four bits keep back at
most 0.24, and four times the batch costs them one percent more steps at most; rank 32 keeps back 0.26 and more."""


def grows(rows: Iterable[Row]) -> bool:
    """Return whether runs of a method feed back errors above LITTLE, in the run that kept most, or unmeasured ones."""
    kept = [row.metrics.get("kept_back") for row in rows if row.case.memory not in (None, "none")]
    known = [share for share in kept if share is not None]
    return bool(kept) and (not known or max(known) > LITTLE)


def _products(points: Sequence[Pair]) -> Pair:
    """Return the sums of products of deviations, and of squares of those of the first coordinate."""
    xs, ys = zip(*points, strict=True)
    x, y = fmean(xs), fmean(ys)
    return sum((a - x) * (b - y) for a, b in points), sum((a - x) ** 2 for a in xs)
