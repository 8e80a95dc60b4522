"""Pictures without a library: stacked bars in a terminal."""

from collections.abc import Mapping
from itertools import pairwise

MARKS = {"compute": "#", "compression": "+", "exposed exchange": "-"}
"""What a step is made of, and the character of each."""
_WIDTH = 60


def bar_lines(bars: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return bars of seconds by part as lines of text, each with its label; the first says what the characters mean."""
    most, wide = max(sum(parts.values()) for parts in bars.values()), max(map(len, bars))
    found = [", ".join(f"{mark} {name}" for name, mark in MARKS.items())]
    for label, parts in bars.items():
        at, ends = 0.0, [0]
        for name in MARKS:
            at += parts[name]
            ends.append(round(_WIDTH * at / most))
        drawn = "".join(mark * (end - begin) for mark, (begin, end) in zip(MARKS.values(), pairwise(ends), strict=True))
        found.append(f"{label:{wide}} {1e3 * at:9.1f} ms  {drawn}")
    return found
