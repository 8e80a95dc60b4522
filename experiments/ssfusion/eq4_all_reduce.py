"""SSFusion Eq. 4: the time of a ring All-Reduce, against measured exchanges of four emulated hosts."""

from __future__ import annotations

from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.ring_fits import FEW, MANY, Fit, draw_fits, fits, verdict
from ssfx.core.rows import Row

NAME = "ssfusion.eq4"
TITLE = "Eq. 4: the time of a ring All-Reduce on four hosts, from latency and bandwidth of two"
COMMAND = "ssfx profile network cluster=emulated_4x1gbit && ssfx figures ssfusion.eq4"
NOTES = ("Latency and bandwidth are fitted to exchanges of two hosts alone; those of four hosts are predicted.",)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the measured exchanges of four hosts and what the formula predicts for them."""
    origin = "Emulated: hosts in network namespaces on one machine. Latency and bandwidth fitted to two hosts."
    return draw_fits(NAME, _fits(), TITLE, r"$2(P-1)\alpha + 2\frac{P-1}{P}D\beta$", origin, out)


def finding(rows: list[Row]) -> str:
    """Return how far the formula is from what was measured."""
    parts = [f"{fit.link} {100 * fit.error:.0f} %" for fit in _fits()]
    return f"median relative error of the formula: {', '.join(parts)}"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether the formula predicts the exchanges of four hosts from those of two."""
    said = "Of four hosts, predicted with latency and bandwidth of two; messages from 1 KiB on."
    return [verdict("ssfusion.eq4.form", _fits(), said, COMMAND)]


def _fits() -> list[Fit]:
    return fits("all_reduce", lambda ranks: (2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks), FEW, MANY)
