"""The curve in a row: what was measured in the middle of training, by column, and as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ssfx.core.case import Case
from ssfx.core.rows import Row

if TYPE_CHECKING:
    import pandas as pd

POINTS = 50
"""Points that a row keeps at most."""

COLUMNS: dict[str, str] = {
    "step": "optimizer steps done",
    "time_s": "seconds of all iterations so far on rank 0, without the time of measuring quality",
    "sent_bytes": "bytes rank 0 has put on the wire so far",
    "loss": "mean training loss since the point before",
    "density": "elements sent over elements on rank 0, mean since the point before",
    "error_norm": "Euclidean norm of what a rank has not sent yet, mean over ranks",
    "threshold": "the threshold that the collective steers, in units of the gradient",
    "union_density": "fraction of elements of the averaged gradient that are not zero: what all ranks sent together",
}
"""Columns of a curve, besides the metrics of quality of ssfx.core.rows.METRICS."""


def points(row: Row) -> Iterator[Mapping[str, float | None]]:
    """Yield the points of a row's curve in order, each by column."""
    for values in zip(*row.curve.values(), strict=True):
        yield dict(zip(row.curve, values, strict=True))


def curves(rows: Iterable[Row]) -> pd.DataFrame:
    """Return one line per point of every row's curve: run_id, the case's fields, and the curve's columns.

    A column that a row does not have is NaN there. `scheme_options` are left out: two rows that differ in nothing else
    differ in run_id.
    """
    import pandas as pd

    lines = []
    for row in rows:
        names = (name for name in Case.__dataclass_fields__ if name != "scheme_options")
        case = {name: getattr(row.case, name) for name in names}
        lines += [{"run_id": row.run_id, **case, **point} for point in points(row)]
    return pd.DataFrame(lines)
