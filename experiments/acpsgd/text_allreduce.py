"""ACP-SGD sections II and IV-B: all-reduces of ResNet-50's gradients, one by one and fused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.low_rank import of
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.perf_model.build_timing_model import system_on
from ssfx.planning.costs import Curve

NAME = "acpsgd.text.allreduce"
TITLE = "All-reduces one by one and fused"
COMMAND = f"ssfx figures {NAME}"

CLUSTER = "acpsgd_10gbe"
KIB = 1024
CLOSE = 0.05
"""Relative difference within which a simulated time counts as the printed one."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the printed times beside nominal ones; published times were fitted to them, so they are left out."""
    origin = "Simulated all-reduces with nominal times: 32 GPUs, 10 Gb/s Ethernet at 90 %, 25 us a message."
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every time and ratio."""
    dense, factors = of("ResNet-50").whole, of("ResNet-50").p
    apart, fused = milliseconds(dense), milliseconds((sum(dense),))
    small_apart, small_fused = milliseconds(factors), milliseconds((sum(factors),))
    values = {
        "acpsgd.ii.two32": 2 * milliseconds((32 * KIB // 4,)),
        "acpsgd.ii.one64": milliseconds((64 * KIB // 4,)),
        "acpsgd.iv.ar.sep": apart,
        "acpsgd.iv.ar.fused": fused,
        "acpsgd.iv.ar.csep": small_apart,
        "acpsgd.iv.ar.cfused": small_fused,
        "acpsgd.iv.ar.speedup": apart / fused,
        "acpsgd.iv.ar.cspeedup": small_apart / small_fused,
    }
    found = [
        held(claim, value, tolerance=CLOSE, source="simulated", calibration="nominal")
        for claim, value in values.items()
    ]
    return complete(NAME, found, COMMAND)


@cache
def curve() -> Curve:
    """Return the time of an all-reduce over bytes, by nominal times."""
    return system_on(cluster(CLUSTER)).exchange["all_reduce"]


def milliseconds(sizes: tuple[int, ...]) -> float:
    """Return the time of all-reducing messages of so many float32 elements one after the other."""
    return 1e3 * sum(float(curve()(4 * size)) for size in sizes)
