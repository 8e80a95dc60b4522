"""SSFusion Fig. 5(b): quality of selective sparsification against per-tensor, multi-tensor and dense training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from ssfx.results.rows import Row

NAME = "ssfusion.fig5b"
TITLE = "Fig. 5(b): quality with per-tensor, multi-tensor and selective sparsification"
CLAIMS = ("ssfusion.fig5",)
NEEDS = {"experiment": "time_to_quality", "calibration": ""}

METHODS = {"ddp": "dense", "per_tensor": "per-tensor", "fused_all": "multi-tensor", "ssfusion_naive": "selective"}
COLOURS = {"dense": "#5f5f5f", "per-tensor": "#e69f00", "multi-tensor": "#a8324a", "selective": "#0072b2"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write quality over steps, a panel for each task, with the range of the seeds."""
    return draw_curves(NAME, grouped(rows, method), COLOURS, quality, rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether selective quality equals that of per-tensor and of dense training, within the seeds."""
    pairs = []
    for model, methods in grouped(rows, method).items():
        if set(METHODS.values()) <= set(methods):
            name = quality(methods["dense"][0])
            own = {label: values(methods[label], name) for label in methods}
            pairs += [
                (f"{model} against {other}", *compared(own["selective"], own[other]), "equal")
                for other in ("per-tensor", "dense")
            ]
    return [judged_order("ssfusion.fig5.acc_parity", pairs)] if pairs else []


def finding(rows: list[Row]) -> str:
    """Return how selective quality differs from that of multi-tensor sparsification, for each task."""
    parts = []
    for model, methods in grouped(rows, method).items():
        if {"selective", "multi-tensor"} <= set(methods):
            name = quality(methods["selective"][0])
            _, said = compared(values(methods["selective"], name), values(methods["multi-tensor"], name))
            parts.append(f"{model} ({name}): selective less multi-tensor {said}")
    return "; ".join(parts)


def method(row: Row) -> str:
    """Return how a row's tensors were sparsified, "" for ways that the figure does not show."""
    return METHODS.get(row.case.scheme, "") if row.case.compressor in (None, "dgc") else ""
