"""SSFusion Eq. 1: sending one tensor costs a latency and a time per byte; measured messages between emulated hosts."""

from __future__ import annotations

from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.figures.ring_fits import FEW, Fit, draw_fits, fits, verdict
from ssfx.core.rows import Row

NAME = "ssfusion.eq1"
TITLE = "Eq. 1: the time of one message is a latency plus a time per byte"
COMMAND = "ssfx profile network cluster=emulated_2x1gbit && ssfx figures ssfusion.eq1"
NOTES = ("Latency and bandwidth are fitted to the very points that are shown; what is tested is that a line fits.",)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the measured messages and the fitted line."""
    origin = "Emulated: messages between two hosts in network namespaces on one machine; latency and bandwidth fitted."
    return draw_fits(NAME, _fits(), TITLE, r"$\alpha + D\beta$, fitted", origin, out)


def finding(rows: list[Row]) -> str:
    """Return the fitted latency and bandwidth."""
    parts = [f"{fit.link}: {1e6 * fit.latency_s:.0f} us and {8e-9 / fit.s_per_byte:.3g} Gbit/s" for fit in _fits()]
    return f"a line fits: {'; '.join(parts)}"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether a line fits."""
    return [verdict("ssfusion.eq1.form", _fits(), "Of a line fitted to messages from 1 KiB on.", COMMAND)]


def _fits() -> list[Fit]:
    return fits("send", lambda _: (1.0, 1.0), FEW, FEW)
