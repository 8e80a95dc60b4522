"""The generated part of docs/sharded.md about quality: long runs in shards beside dense ones of whole models."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import fmean

from experiments.common.pages.markdown import table
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import EXPERIMENT, is_dense

SHARDED = "sharded_quality"
HEADER = ("task", "sums", "weights", "seeds", "at the end", "dense", "gap by seed", "bytes of a step")


def sharded_quality_block(rows: Sequence[Row]) -> str:
    """Return a line for each task and method: its quality, that of dense training from the same seeds, and bytes."""
    sharded = [row for row in rows if row.case.experiment == SHARDED and not is_dense(row)]
    dense = {
        (row.case.model, row.case.seed): row for row in rows if row.case.experiment == EXPERIMENT and is_dense(row)
    }
    groups: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    for row in sharded:
        case = row.case
        if (whole := dense.get((case.model, case.seed))) is not None:
            key = (case.model, case.compressor or "", case.weights or "torch's own")
            groups.setdefault(key, []).append((row, whole))
    if not groups:
        return f"*No such rows are committed yet; `ssfx run experiment={SHARDED}` makes them.*"
    return table(HEADER, [_cells(*key, pairs) for key, pairs in sorted(groups.items())])


def _cells(model: str, sums: str, weights: str, pairs: Sequence[tuple[Row, Row]]) -> tuple[str, ...]:
    pairs = sorted(pairs, key=lambda pair: pair[0].case.seed)
    metric = "perplexity" if "perplexity" in pairs[0][0].metrics else "top1"
    ours, theirs = ([float(row.metrics[metric] or 0) for row in part] for part in zip(*pairs, strict=True))
    gaps = ", ".join(f"{100 * _gap(metric, one, other):+.2f} %" for one, other in zip(ours, theirs, strict=True))
    share = fmean(
        float(one.metrics["sent_bytes"] or 0) / float(whole.metrics["sent_bytes"] or 1) for one, whole in pairs
    )
    return (
        model, f"`{sums}`", weights, str(len(pairs)), _said(metric, ours), _said(metric, theirs), gaps, f"{share:.2f}"
    )  # fmt: skip


def _gap(metric: str, value: float, dense: float) -> float:
    """Return the gap of the evaluated loss where there is one, else of the quality, as a share of dense training's."""
    return log(value) / log(dense) - 1 if metric == "perplexity" else value / dense - 1


def _said(metric: str, values: Sequence[float]) -> str:
    return f"perplexity {fmean(values):.2f}" if metric == "perplexity" else f"{100 * fmean(values):.2f} % top-1"
