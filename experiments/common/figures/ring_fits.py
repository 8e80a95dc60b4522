"""Formulas for the time of an exchange against measured exchanges: fitted at one number of ranks, tried at another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.common.claims.verdicts import Outcome, Verdict
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, plt
from ssfx.perf_model.recorded_times import recorded_system

LINKS = ("100mbit", "1gbit")
FEW, MANY = 2, 4
"""Hosts whose exchanges give latency and bandwidth, and hosts whose exchanges are predicted by them."""
CLOSE, FAR = 0.10, 0.25
"""Median relative error up to which a formula agrees, and partly agrees, with what was measured."""
LARGE_BYTES = 1024
"""Messages from here on count: below, a measured time is what starting an exchange takes."""
COST = "the recorded exchanges: ssfx profile network, minutes each, as root"


@dataclass(frozen=True)
class Fit:
    """One link: measured (bytes, seconds) of MANY hosts, and the formula's seconds with what FEW hosts gave."""

    link: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    predicted: tuple[float, ...]
    latency_s: float
    s_per_byte: float

    @property
    def error(self) -> float:
        """Median relative error."""
        pairs = zip(self.predicted, self.seconds, strict=True)
        return median(abs(ours / theirs - 1) for ours, theirs in pairs)


Factors = Callable[[int], tuple[float, float]]
"""Ranks -> how many latencies, and how many times the message's bytes, an exchange takes one after the other."""


def fits(collective: str, factors: Factors, fitted: int, tried: int) -> list[Fit]:
    """Return a Fit per link: latency and seconds per byte from `fitted` hosts, times predicted for `tried` hosts."""
    found = []
    for link in LINKS:
        known, other = (_points(f"emulated_{ranks}x{link}", ranks, collective) for ranks in (fitted, tried))
        starts, bytes_factor = factors(fitted)
        latency_s, s_per_byte = _line([(starts, bytes_factor * size, seconds) for size, seconds in known])
        starts, bytes_factor = factors(tried)
        predicted = tuple(starts * latency_s + bytes_factor * s_per_byte * size for size, _ in other)
        sizes, seconds = zip(*other, strict=True)
        found.append(Fit(link, sizes, seconds, predicted, latency_s, s_per_byte))
    return found


def verdict(claim: str, found: Sequence[Fit], said: str, command: str) -> Verdict:
    """Return whether a formula meets what was measured, by the median relative error over both links."""
    worst = max(fit.error for fit in found)
    outcome: Outcome = "agrees" if worst <= CLOSE else "partly" if worst <= FAR else "disagrees"
    here = "median error " + ", ".join(f"{100 * fit.error:.0f} % ({fit.link})" for fit in found)
    return Verdict(claim, outcome, here, "emulated", reason=said, command=command, cost=COST)


def draw_fits(found: Sequence[Fit], title: str, formula: str, origin: str) -> Picture:
    """Return a panel per link: measured points and the formula's line, over the bytes that one rank contributes."""
    figure, grid = plt.subplots(
        1, len(found), figsize=(2 * COLUMN_IN, 2.5), squeeze=False, sharey=True, layout="constrained"
    )
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=8)
    for fit, axis in zip(found, grid.flat, strict=True):
        _draw(fit, axis, formula)
    grid.flat[0].set_ylabel("time (ms)")
    figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
    table = [
        {"link": fit.link, "bytes": size, "measured_ms": 1e3 * seconds, "formula_ms": 1e3 * ours}
        for fit in found
        for size, seconds, ours in zip(fit.sizes, fit.seconds, fit.predicted, strict=True)
    ]
    return figure, table


def _draw(fit: Fit, axis: Axes, formula: str) -> None:
    axis.plot(fit.sizes, [1e3 * s for s in fit.predicted], color="#0072b2", linewidth=1.2, label=formula)
    axis.plot(fit.sizes, [1e3 * s for s in fit.seconds], "o", color="#d55e00", markersize=4, label="measured")
    axis.set(xscale="log", yscale="log", xlabel="message of one rank (bytes)")
    speed = fit.link.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
    axis.set_title(f"{speed}: median error {100 * fit.error:.0f} %", loc="left")
    axis.grid()
    axis.legend(loc="upper left")


def _points(cluster: str, ranks: int, collective: str) -> list[tuple[float, float]]:
    system = recorded_system(cluster, ranks, shipped=True)
    assert system is not None, f"the package ships exchanges of {cluster}"
    curve = system.exchange[collective]
    return [pair for pair in zip(curve.sizes, curve.seconds, strict=True) if pair[0] >= LARGE_BYTES]


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return latency and seconds per byte of least relative error for (latencies, bytes, seconds); none negative."""
    import numpy as np

    matrix = np.array([(starts / seconds, size / seconds) for starts, size, seconds in points])
    latency_s, s_per_byte = np.linalg.lstsq(matrix, np.ones(len(points)), rcond=None)[0]
    return max(0.0, float(latency_s)), float(s_per_byte)
