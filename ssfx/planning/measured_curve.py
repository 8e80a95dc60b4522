"""Curves through measured sizes: straight lines in logarithms between them, and an end to what they are taken for."""

from collections.abc import Sequence
from math import ceil, exp, log, log2

from ssfx.planning.costs import Curve

FREE = 2.0
"""Times that a size may be beyond the measured ones without a word; `Curve.covers` is false from there on."""
MOST = 8.0
"""Times beyond which nothing is said at all."""
_PER_OCTAVE = 4
"""Knots by which a straight line in logarithms is followed; the chords are 0.2 % above it at most."""


class MeasuredCurve(Curve):
    """A curve that `measured` made: the first and the last knot are twice beyond the sizes that were measured."""

    @property
    def range_text(self) -> str:
        """The sizes that were measured, "8 .. 33,554,432"."""
        return f"{max(1.0, FREE * self.sizes[0]):,.0f} .. {self.sizes[-1] / FREE:,.0f}"

    def refuses(self, size: float) -> bool:
        """Return whether `size` is more than 8 times below or above all that was measured."""
        beyond = MOST / FREE
        return size > 0 and not self.sizes[0] / beyond <= size <= self.sizes[-1] * beyond


def measured(sizes: Sequence[float], seconds: Sequence[float]) -> MeasuredCurve:
    """Return the curve through points with increasing sizes: log-log between, flat below, proportional above.

    Times that fall with the size are kept. ValueError for fewer than two points, and for what is not positive.
    """
    if len(sizes) != len(seconds) or len(sizes) < 2:
        raise ValueError("a measured curve needs as many seconds as sizes, and at least two")
    if not all(size > 0 for size in sizes) or not all(second > 0 for second in seconds):
        raise ValueError("sizes and seconds must be positive")
    xs, ys = [sizes[0] / FREE], [seconds[0]]
    for x0, x1, y0, y1 in zip(sizes, sizes[1:], seconds, seconds[1:], strict=False):
        if not x0 < x1:
            raise ValueError("curve sizes must increase")
        parts = max(1, ceil(_PER_OCTAVE * log2(x1 / x0) - 1e-9))
        for part in range(parts):
            share = part / parts
            xs.append(x0 if part == 0 else x0 * exp(share * log(x1 / x0)))
            ys.append(y0 if part == 0 else y0 * exp(share * log(y1 / y0)))
    xs += [sizes[-1], FREE * sizes[-1]]
    ys += [seconds[-1], FREE * seconds[-1]]
    return MeasuredCurve(tuple(map(float, xs)), tuple(ys))
