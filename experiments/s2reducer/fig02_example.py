"""S2 Reducer Fig. 2: a worked example of sketch and bitmap, from two workers to the recovered sum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.sketch_example import Array, queried, sketch
from experiments.common.figures.tables import draw_table
from ssfx.collectives.sketch_hash import draw as draw_hashes
from ssfx.core.rows import Row

NAME = "s2reducer.fig2"
TITLE = "Sketch and bitmap of two workers, added up and read back"
COMMAND = f"ssfx figures {NAME}"

ELEMENTS, BLOCK, BUCKETS = 16, 4, 8
SEED = 3


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every vector of the example as one line of a table."""
    table = []
    for name, vector in vectors().items():
        cells = {f"c{i}": (f"{value:g}" if value else "0") for i, value in enumerate(vector)}
        table.append({"what": name, **cells, **{f"c{i}": "" for i in range(len(vector), ELEMENTS)}})
    columns = {"what": "", **{f"c{i}": str(i) for i in range(ELEMENTS)}}
    origin = (
        f"Computed by ssfx: hash functions of its collective s2_sketch, blocks of {BLOCK}, {BUCKETS} buckets; elements "
        "that share a bucket are read back with an error."
    )
    return draw_table(NAME, TITLE, columns, table, out, origin=origin)


def vectors() -> dict[str, Array]:
    """Return the vectors of the example in the order in which they arise."""
    first, second = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    first[4:8], second[4:8], second[12:16] = (2, 0, 1, 3), (1, 4, 0, 2), (5, 0, 0, 1)
    rows = draw_hashes(1, SEED, ELEMENTS, 0)
    every = np.arange(ELEMENTS)
    sketches = [sketch(rows, vector, every, BUCKETS) for vector in (first, second)]
    bitmaps = [vector.reshape(-1, BLOCK).any(axis=1).astype(float) for vector in (first, second)]
    together, counted = sketches[0] + sketches[1], bitmaps[0] + bitmaps[1]
    union = counted > 0
    at = np.flatnonzero(np.repeat(union, BLOCK))
    read = np.zeros(ELEMENTS)
    read[at] = queried(rows, together, at)
    return {
        "gradient of worker 1": first,
        "gradient of worker 2": second,
        "sketch of worker 1": sketches[0][0],
        "sketch of worker 2": sketches[1][0],
        "sum of sketches": together[0],
        "bitmap of worker 1": bitmaps[0],
        "bitmap of worker 2": bitmaps[1],
        "sum of bitmaps": counted,
        "read back": read,
        "true sum": first + second,
    }


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this figure."""
    return complete(NAME, [], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return how many elements are read back exactly."""
    found = vectors()
    exact = int((found["read back"] == found["true sum"]).sum())
    return f"{exact} of {ELEMENTS} elements are read back exactly"
